# SPDX-License-Identifier: Apache-2.0
"""End a call from another folder: there Ansible does not find ansible.cfg, and with it no role and none of our checks.

Ansible loads plugins for variables from the folder of a playbook before it reads the playbook; it finds no other kind
of plugin there so early. `playbooks/vars_plugins` is a link to this folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

import ansible.module_utils
from ansible import constants as C
from ansible.plugins.vars import BaseVarsPlugin
from ansible.utils.display import Display

PROJECT = Path(__file__).resolve().parents[1]
CONFIGURATION = PROJECT / "ansible.cfg"


def is_ours() -> bool:
    """Tell whether Ansible has read this project's configuration, or one of a user's own that names our plugins."""
    found = [Path(each).resolve() for each in C.DEFAULT_CALLBACK_PLUGIN_PATH or ()]
    return bool(C.CONFIG_FILE) and (
        Path(C.CONFIG_FILE).resolve() == CONFIGURATION or PROJECT / "plugins/callback" in found
    )


def end_if_not_ours() -> None:
    """End ansible-playbook with status 2 and what to do, where it has not read our configuration."""
    if is_ours():
        return
    if str(PROJECT / "module_utils") not in ansible.module_utils.__path__:
        ansible.module_utils.__path__.append(str(PROJECT / "module_utils"))
    from ansible.module_utils.trainyard.findings.findings import Finding, render
    from ansible.module_utils.trainyard.inputs.variables import HEADLINE

    finding = Finding(
        "configuration",
        C.CONFIG_FILE or f"no ansible.cfg that Ansible reads in {Path.cwd()}",
        f"{CONFIGURATION}, which names this project's roles and checks",
        f"cd {PROJECT}, or export ANSIBLE_CONFIG={CONFIGURATION}",
    )
    Display().display(render([finding], HEADLINE), color=C.COLOR_ERROR)
    raise SystemExit(2)


class VarsModule(BaseVarsPlugin):
    """See the module's docstring."""

    def get_vars(self, loader: object, path: object, entities: object, cache: bool = True) -> dict[str, object]:  # noqa: ARG002
        """Return no variables."""
        return {}


# Nothing of a plugin is called before Ansible has stumbled over a role that it does not find.
if Path(sys.argv[0]).name == "ansible-playbook":
    end_if_not_ours()
