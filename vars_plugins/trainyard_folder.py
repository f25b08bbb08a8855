# SPDX-License-Identifier: Apache-2.0
"""End a call from another folder, where Ansible finds neither ansible.cfg nor roles and checks.

Only variable plugins are loaded from the folder of a playbook before the playbook is read. `playbooks/vars_plugins`
links to this folder.
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
    """Tell whether Ansible has read this project's configuration, or a user's own with the project's plugins."""
    found = [Path(each).resolve() for each in C.DEFAULT_CALLBACK_PLUGIN_PATH or ()]
    return bool(C.CONFIG_FILE) and (
        Path(C.CONFIG_FILE).resolve() == CONFIGURATION or PROJECT / "plugins/callback" in found
    )


def end_if_not_ours() -> None:
    """End ansible-playbook with status 2 and a finding if it has not read the project's configuration."""
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
    """Provides no variables; it exists to be loaded early."""

    def get_vars(self, loader: object, path: object, entities: object, cache: bool = True) -> dict[str, object]:  # noqa: ARG002
        """Return no variables."""
        return {}


# At import, as Ansible calls nothing of a plugin before it fails on a missing role.
if Path(sys.argv[0]).name == "ansible-playbook":
    end_if_not_ours()
