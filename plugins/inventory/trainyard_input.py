# SPDX-License-Identifier: Apache-2.0
"""Check inventories and files of variables, `-e @FILE`, before Ansible reads them: the earliest moment for a project.

Ansible reads these files with every inventory source, once for each kind of inventory, and says of a fault that the
inventory could not be parsed. This kind of inventory is never one; it is asked first (ansible.cfg), and ends the run
with its findings. The callback plugin of the same name checks what is in the files.
"""

from __future__ import annotations

DOCUMENTATION = r"""
name: trainyard_input
short_description: Checks which inventories are named, and what is given as -e @FILE or -e YAML; is no inventory
description:
  - Ends ansible-playbook with status 2 where no inventory is named, or one that does not exist.
  - The same where a file of variables is missing or empty, and where either is no YAML.
  - The same where such a file, or one of the inventory, is no UTF-8, or encrypted without the right password.
options: {}
"""

import sys
from pathlib import Path

import ansible.module_utils
from ansible import constants as C
from ansible import context
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.inventory import BaseInventoryPlugin

PROJECT = Path(__file__).resolve().parents[2]
if str(PROJECT / "module_utils") not in ansible.module_utils.__path__:
    ansible.module_utils.__path__.append(str(PROJECT / "module_utils"))

from ansible.module_utils.trainyard.findings.findings import Finding, render
from ansible.module_utils.trainyard.inputs import inventories, job_file
from ansible.module_utils.trainyard.inputs import variables as inputs
from ansible.module_utils.trainyard_controller import input_files as given_files
from ansible.module_utils.trainyard_controller import interrupts
from ansible.module_utils.trainyard_controller.value_sources import shown

interrupts.answer_early()

PLAYBOOKS = (PROJECT, PROJECT / "playbooks")
# It reads reports on the controller, and works on no host.
WITHOUT_HOSTS = ("compare.yml",)


class InventoryModule(BaseInventoryPlugin):
    """See the module's docstring."""

    NAME = "trainyard_input"

    def verify_file(self, path: str) -> bool:  # noqa: ARG002
        """Return False, as no source is ours; check all sources and the options -e before."""
        options = [str(each).strip() for each in context.CLIARGS.get("extra_vars") or ()]
        findings = [*self._inventories(), *(finding for each in options if (finding := self._fault(each)))]
        sources = [str(each) for each in context.CLIARGS.get("inventory") or ()]
        findings += given_files.faults(sources, shown)
        if findings:
            self.display.display(render(findings, inputs.HEADLINE), color=C.COLOR_ERROR)
            raise SystemExit(2)
        return False

    def _inventories(self) -> list[Finding]:
        """Find that a playbook of ours has no inventory, or one that does not exist."""
        playbooks = [Path(each).resolve() for each in context.CLIARGS.get("args") or ()]
        ours = [each for each in playbooks if each.is_file() and each.parent in PLAYBOOKS]
        sources = [str(each) for each in context.CLIARGS.get("inventory") or ()]
        default, origin = C.config.get_config_value_and_origin("DEFAULT_HOST_LIST")
        nobodys = sources == default and origin == "default" and not any(Path(each).exists() for each in sources)
        if inventories.is_empty(sys.argv[1:]) or (nobodys and any(each.name not in WITHOUT_HOSTS for each in ours)):
            # Linters read a playbook without running it.
            reads = bool(context.CLIARGS.get("syntax"))
            localhost = shown(PROJECT / "inventories/localhost")
            return [] if reads else [inventories.not_named(sys.argv[1:], localhost)]
        paths = [] if nobodys else [Path(each) for each in sources if "," not in each]
        findings = []
        for path in paths:
            if path.resolve() == PROJECT:
                findings.append(inventories.of_project(str(path)))
            elif not path.exists():
                folders = (path.parent, PROJECT / "inventories")
                others = [shown(each) for folder in folders for each in sorted(folder.glob("*"))]
                findings.append(inventories.missing(shown(path), others, sources == default))
        return findings

    def _fault(self, option: str) -> Finding | None:
        if option[:1] in ("/", "."):
            return inputs.no_variable(option, option)
        if option[:1] in ("[", "{"):
            return inputs.no_dictionary(option, lambda: DataLoader().load(option))
        if option[:1] != "@":
            return None
        path = Path(option[1:])
        name = shown(Path(option[1:]))
        if not path.exists():
            files = [f"jobs/{each.name}" for each in sorted(PROJECT.glob("jobs/*.yml"))]
            return job_file.missing(name, files)
        if not path.is_file():
            return None
        unreadable = given_files.fault(path, name, "job file")
        text = path.read_text(errors="replace")
        if unreadable or text.startswith("$ANSIBLE_VAULT"):
            return unreadable
        return job_file.read(name, text, lambda: DataLoader().load(text, file_name=str(path.resolve())))[1]
