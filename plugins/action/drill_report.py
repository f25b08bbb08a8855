# SPDX-License-Identifier: Apache-2.0
"""Compare the runs of a drill, and report what the job survives. Documentation: library/drill_report.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.module_utils.trainyard.report.drill_page import text
from ansible.module_utils.trainyard_controller import drilling
from ansible.module_utils.trainyard_controller.action_plugin import OnceForAll


class ActionModule(OnceForAll):
    def answer(self, given: dict[str, Any]) -> dict[str, Any]:
        found = drilling.report(drilling.of_record(given["drill"]), given["runs"], Path(given["runs_dir"]))
        shown = text(found, found["page"], found["command"])
        result = {"state": found["state"], "headline": found["headline"]}
        if found["state"] == "fail":
            return {**result, "failed": True, "msg": shown}
        self._display.display(shown)
        return result
