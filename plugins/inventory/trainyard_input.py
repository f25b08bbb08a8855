# SPDX-License-Identifier: Apache-2.0
"""Check inventories and files of variables, `-e @FILE`, before Ansible reads them.

Ansible would report an error in them once for each inventory plugin, as an inventory that cannot be parsed. This plugin
comes first (ansible.cfg). The callback plugin of the same name checks the variables.
"""

from __future__ import annotations

DOCUMENTATION = r"""
name: trainyard_input
short_description: Checks inventories and the options -e; provides no inventory
description:
  - Ends ansible-playbook with status 2 where no inventory is named, or it does not exist.
  - Does the same where a file of variables is missing, empty or not YAML.
  - Does the same where a file is not UTF-8, or encrypted without the right password.
options: {}
"""

import sys
from pathlib import Path
from typing import ClassVar

import ansible.module_utils
from ansible import constants as C
from ansible import context
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.inventory import BaseInventoryPlugin

PROJECT = Path(__file__).resolve().parents[2]
ansible.module_utils.__path__.append(str(PROJECT / "module_utils"))

from ansible.module_utils.trainyard.base.findings import Finding, render
from ansible.module_utils.trainyard.inputs import input_variables, inventories, job_file
from ansible.module_utils.trainyard_controller.ansible import interrupts, terminal
from ansible.module_utils.trainyard_controller.inputs import input_files
from ansible.module_utils.trainyard_controller.inputs.value_sources import shown

interrupts.answer_early()
# Lists of tasks and the like are for programs.
_LISTS = any(context.CLIARGS.get(each) for each in ("listhosts", "listtasks", "listtags", "syntax"))
_IS_SHOWN = Path(sys.argv[0]).name == "ansible-playbook" and C.DEFAULT_STDOUT_CALLBACK.endswith("trainyard")
if _IS_SHOWN and not _LISTS:
    terminal.running_task().watch()

PLAYBOOKS = (PROJECT, PROJECT / "playbooks")
# These work on the controller alone.
WITHOUT_HOSTS = ("compare.yml",)


class InventoryModule(BaseInventoryPlugin):
    """See DOCUMENTATION."""

    NAME = "trainyard_input"
    # What has no findings: Ansible asks for each file of an inventory's folder, each time with a new plugin.
    checked: ClassVar[list[str]] = []

    def verify_file(self, path: str) -> bool:  # noqa: ARG002
        """Check all sources and options -e; return False, as no source is for this plugin."""
        options = [str(each).strip() for each in context.CLIARGS.get("extra_vars") or ()]
        sources = [str(each) for each in context.CLIARGS.get("inventory") or ()]
        if [*sources, *options] == InventoryModule.checked:
            return False
        # One that is not there, or is another folder, has nothing to read.
        findings = self._inventories() or input_files.inventory_findings(sources, shown)
        findings = [*findings, *filter(None, map(_option_finding, options))]
        if findings:
            self.display.display(render(findings, input_variables.HEADLINE), color=C.COLOR_ERROR)
            raise SystemExit(2)
        InventoryModule.checked = [*sources, *options]
        return False

    def _inventories(self) -> list[Finding]:
        """Find that a playbook of the project has no inventory, or one that does not exist."""
        playbooks = [Path(each).resolve() for each in context.CLIARGS.get("args") or ()]
        ours = [each for each in playbooks if each.is_file() and each.parent in PLAYBOOKS]
        sources = [str(each) for each in context.CLIARGS.get("inventory") or ()]
        default, origin = C.config.get_config_value_and_origin("DEFAULT_HOST_LIST")
        unset = sources == default and origin == "default" and not any(Path(each).exists() for each in sources)
        if inventories.is_empty(sys.argv[1:]) or (unset and any(each.name not in WITHOUT_HOSTS for each in ours)):
            # Linters read a playbook without running it.
            if context.CLIARGS.get("syntax"):
                return []
            return [inventories.not_named(sys.argv[1:], shown(PROJECT / "inventories/localhost"))]
        paths = [] if unset else [Path(each) for each in sources if "," not in each]
        findings = []
        for path in paths:
            if path.resolve() == PROJECT:
                findings.append(inventories.of_project(str(path)))
            elif not path.exists():
                folders = (path.parent, PROJECT / "inventories")
                others = [shown(each) for folder in folders for each in sorted(folder.glob("*"))]
                findings.append(inventories.missing(shown(path), others, sources == default))
        return findings


def _option_finding(option: str) -> Finding | None:
    """Find what is wrong with an option -e."""
    if option[:1] in ("/", "."):
        return input_variables.no_variable(option, option)
    if option[:1] in ("[", "{"):
        return input_variables.no_dictionary(option, lambda: DataLoader().load(option))
    if option[:1] != "@":
        return None
    path = Path(option[1:])
    name = shown(path)
    if not path.exists():
        return job_file.missing(name, [f"jobs/{each.name}" for each in sorted(PROJECT.glob("jobs/*.yml"))])
    if path.is_dir():
        return job_file.folder(name, [shown(each) for each in sorted(path.glob("*.y*ml"))])
    if not path.is_file():
        return None
    unreadable = input_files.file_finding(path, name, "job file")
    text = path.read_text(errors="replace")
    if unreadable or text.startswith("$ANSIBLE_VAULT"):
        return unreadable
    return job_file.read(name, text, lambda: DataLoader().load(text, file_name=str(path.resolve())))[1]
