# SPDX-License-Identifier: Apache-2.0
"""Return the inventories of this call of Ansible, for the commands that it prints."""

from __future__ import annotations

from pathlib import Path

from ansible import context

from ...trainyard.base.adhoc import from_here, inventory_options


def inventory_given() -> str:
    """Return the options `-i` of this call, with paths below the working folder as seen from there."""
    sources = context.CLIARGS.get("inventory") or ()
    return inventory_options(from_here(source, str(Path.cwd())) for source in sources)


def inventory_named() -> str:
    """Return inventory_given(); "" if neither this call nor Ansible's configuration names an inventory."""
    # Imported late: it loads all of Ansible's controller.
    from ansible import constants as C

    _, origin = C.config.get_config_value_and_origin("DEFAULT_HOST_LIST")
    is_default = origin == "default" and list(context.CLIARGS.get("inventory") or ()) == C.DEFAULT_HOST_LIST
    return "" if is_default else inventory_given()
