# SPDX-License-Identifier: Apache-2.0
"""Write the report of a verification, and return how it ended. Documentation: library/verify_report.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.module_utils.trainyard_controller.ansible.action_plugin import Documented
from ansible.module_utils.trainyard_controller.verify.verify_reporting import report


class ActionModule(Documented):
    def answer(self, given: dict[str, Any]) -> dict[str, Any]:
        return report(Path(given.pop("run_dir")), given, check=self._task.check_mode)
