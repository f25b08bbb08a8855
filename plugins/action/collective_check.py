# SPDX-License-Identifier: Apache-2.0
"""Check the values that ranks have gathered. Documentation: library/collective_check.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.module_utils.trainyard.findings.findings import UnusableError
from ansible.module_utils.trainyard_controller.action_plugin import Documented
from ansible.module_utils.trainyard_controller.measurements import check_collective, refuse_collective


class ActionModule(Documented):
    def answer(self, given: dict[str, Any]) -> dict[str, Any]:
        if given["refused"]:
            return refuse_collective(given["refused"], given["name"], given["command"])
        if not given["run_dir"]:
            raise UnusableError("neither run_dir nor refused is given, expected the folder of a run, or its findings")
        return check_collective(Path(given["run_dir"]), given["name"], given["command"])
