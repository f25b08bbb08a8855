# SPDX-License-Identifier: Apache-2.0
"""Return the inventories of this call of Ansible, for the commands that it prints."""

from __future__ import annotations

from pathlib import Path

from ansible import context

from ..trainyard.findings.adhoc import inventory_options
from ..trainyard.inputs.job_file import from_here


def inventory_given() -> str:
    """Return the options `-i` of this call, with paths below the working folder as seen from there."""
    sources = context.CLIARGS.get("inventory") or ()
    return inventory_options(from_here(source, str(Path.cwd())) for source in sources)
