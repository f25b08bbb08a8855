# SPDX-License-Identifier: Apache-2.0
"""Looks at files of variables, `-e @FILE`, before Ansible does: the earliest moment at which a project is asked.

Ansible reads these files with every inventory source, once for each kind of inventory, and says of a fault that the
inventory could not be parsed. This kind of inventory is never one; it is asked first (ansible.cfg), and ends the run
with one finding. What is in the files is looked at by the callback plugin of the same name.
"""

from __future__ import annotations

DOCUMENTATION = r"""
name: trainyard_input
short_description: Looks at what is given as -e @FILE or -e YAML, and is no inventory
description:
  - Ends ansible-playbook with status 2 where such a file is missing or empty, and where either is no YAML.
options: {}
"""

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
from ansible.module_utils.trainyard.inputs import job_file
from ansible.module_utils.trainyard.inputs import variables as inputs


class InventoryModule(BaseInventoryPlugin):
    """See the module's docstring."""

    NAME = "trainyard_input"

    def verify_file(self, path: str) -> bool:  # noqa: ARG002
        """Say that no source is ours, after a look at the options -e."""
        options = [str(each).strip() for each in context.CLIARGS.get("extra_vars") or ()]
        findings = [finding for each in options if (finding := self._fault(each))]
        if findings:
            self.display.display(render(findings, inputs.HEADLINE), color=C.COLOR_ERROR)
            raise SystemExit(2)
        return False

    def _fault(self, option: str) -> Finding | None:
        if option[:1] in ("/", "."):
            return inputs.no_variable(option, option)
        if option[:1] in ("[", "{"):
            return inputs.no_dictionary(option, lambda: DataLoader().load(option))
        if option[:1] != "@":
            return None
        path = Path(option[1:])
        name = job_file.from_here(option[1:], str(Path.cwd()))
        if not path.exists():
            files = [f"jobs/{each.name}" for each in sorted(PROJECT.glob("jobs/*.yml"))]
            return job_file.missing(name, files)
        if not path.is_file():
            return None
        text = path.read_text(errors="replace")
        # Nobody has asked for the password yet.
        if text.startswith("$ANSIBLE_VAULT"):
            return None
        return job_file.read(name, text, lambda: DataLoader().load(text, file_name=str(path.resolve())))[1]
