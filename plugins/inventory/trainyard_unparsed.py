# SPDX-License-Identifier: Apache-2.0
"""End a run with an inventory that no plugin of Ansible could read whole.

Ansible would warn, and go on with the hosts before the error. It tries the plugins in the order of ansible.cfg, so this
one, the last, gets only what the others rejected, and before Ansible prints why.
"""

from __future__ import annotations

DOCUMENTATION = r"""
name: trainyard_unparsed
short_description: Ends a run with an inventory that could not be read whole; provides no inventory
description:
  - Ends with status 2 and a finding that names file and line, except in C(ansible-inventory), which shows all reasons.
options: {}
"""

import sys
from pathlib import Path

import ansible.module_utils
from ansible import constants as C
from ansible import context
from ansible.plugins.inventory import BaseInventoryPlugin

PROJECT = Path(__file__).resolve().parents[2]
ansible.module_utils.__path__.append(str(PROJECT / "module_utils"))

from ansible.module_utils.trainyard.base.findings import render
from ansible.module_utils.trainyard.inputs import input_variables
from ansible.module_utils.trainyard_controller.inputs import input_files
from ansible.module_utils.trainyard_controller.inputs.value_sources import shown


class InventoryModule(BaseInventoryPlugin):
    """See DOCUMENTATION."""

    NAME = "trainyard_unparsed"

    def verify_file(self, path: str) -> bool:
        """End the run if the path is a file; return False, as no source is for this plugin."""
        if Path(path).is_file() and Path(sys.argv[0]).name != "ansible-inventory":
            findings = input_files.unparsed(Path(path), context.CLIARGS.get("inventory") or (), shown)
            self.display.display(render(findings, input_variables.HEADLINE), color=C.COLOR_ERROR)
            raise SystemExit(2)
        return False
