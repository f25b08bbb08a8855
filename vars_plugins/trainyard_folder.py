# SPDX-License-Identifier: Apache-2.0
"""Make sure that the project's callback plugins run: they check all input, and print.

A call with a configuration that lacks them, as from another folder, or in the collection, ends. Only variable plugins
are loaded from the folder of a playbook before the playbook is read. `playbooks/vars_plugins` links to this folder.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import ansible.module_utils
from ansible import constants as C
from ansible.plugins.loader import callback_loader
from ansible.plugins.vars import BaseVarsPlugin
from ansible.utils.display import Display

PROJECT = Path(__file__).resolve().parents[1]
CONFIGURATION = PROJECT / "ansible.cfg"
CALLBACKS = PROJECT / "plugins/callback"
# The callback plugin that checks all input, where this is a collection.
IN_COLLECTION = f"{PROJECT.parent.name}.{PROJECT.name}.trainyard_input"
IS_COLLECTION = PROJECT.parent.parent.name == "ansible_collections"


def is_ours() -> bool:
    """Tell whether Ansible has read this project's configuration, or a user's own with the project's plugins."""
    if IS_COLLECTION:
        return IN_COLLECTION in (C.CALLBACKS_ENABLED or ())
    found = [Path(each).resolve() for each in C.DEFAULT_CALLBACK_PLUGIN_PATH or ()]
    return bool(C.CONFIG_FILE) and (Path(C.CONFIG_FILE).resolve() == CONFIGURATION or CALLBACKS in found)


def end_if_not_ours() -> None:
    """End ansible-playbook with status 2 and a finding if it has not read the project's configuration."""
    if is_ours():
        return
    if str(PROJECT / "module_utils") not in ansible.module_utils.__path__:
        ansible.module_utils.__path__.append(str(PROJECT / "module_utils"))
    from ansible.module_utils.trainyard.base.findings import Finding, render
    from ansible.module_utils.trainyard.inputs.input_variables import HEADLINE

    found = C.CONFIG_FILE or f"no ansible.cfg that Ansible reads in {Path.cwd()}"
    expected = f"{CONFIGURATION}, which names this project's roles and checks"
    action = f"cd {PROJECT}, or export ANSIBLE_CONFIG={CONFIGURATION}"
    if IS_COLLECTION:
        found = f"{found}, without the collection's check of all input"
        expected = f"callbacks_enabled = {IN_COLLECTION}"
        action = f"write it into the section [defaults]: {PROJECT}/docs/collection.cfg has all settings"
    finding = Finding("configuration", found, expected, action)
    Display().display(render([finding], HEADLINE), color=C.COLOR_ERROR)
    raise SystemExit(2)


def restore_settings() -> None:
    """Restore settings of ansible.cfg that ansible-runner, and so ansible-navigator and AWX, overrides by variables.

    These name its own callback plugins alone, and turn the check of host keys off. Its plugin for the output builds on
    the one that ORIGINAL_STDOUT_CALLBACK names. In the collection it is there before this file is, so the user names
    the collection's output (docs/execution-environment.md).
    """
    under_runner = C.DEFAULT_STDOUT_CALLBACK == "awx_display"
    if not IS_COLLECTION:
        callback_loader.add_directory(str(CALLBACKS))
        if under_runner:
            os.environ.setdefault("ORIGINAL_STDOUT_CALLBACK", "trainyard")
    if under_runner:
        # A variable of the inventory, ansible_host_key_checking, still counts.
        os.environ.pop("ANSIBLE_HOST_KEY_CHECKING", None)


class VarsModule(BaseVarsPlugin):
    """Provides no variables; it exists to be loaded early."""

    # Ansible imports the file and builds no plugin of it: it would do so dozens of times for each host.
    REQUIRES_ENABLED = True
    # Somebody may enable it: then it is built once.
    is_stateless = True

    def get_vars(self, loader: object, path: object, entities: object, cache: bool = True) -> dict[str, object]:  # noqa: ARG002
        """Return no variables."""
        return {}


# At import, as Ansible calls nothing of a plugin before it fails on a missing role.
if Path(sys.argv[0]).name == "ansible-playbook":
    end_if_not_ours()
    restore_settings()
