# SPDX-License-Identifier: Apache-2.0
"""Remove what was chosen, note it in runs/, and say it. Documentation: library/job_clean.py."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from ansible.module_utils.trainyard.findings.findings import render
from ansible.module_utils.trainyard_controller.cleaning import note, remove, remove_objects
from ansible.module_utils.trainyard_controller.fan_out import FanOut
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

display = Display()


class ActionModule(ActionBase):
    """Visit the nodes that have folders of these jobs."""

    BYPASS_HOST_LOOP = True
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Fail with what could not be removed. What has been removed is noted before."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        runs_dir, chosen = Path(self._task.args["runs_dir"]), self._task.args["chosen"]
        result["changed"] = any(chosen[name] for name in ("remove", "objects", "records"))
        if not self._task.check_mode:
            answers = remove(chosen["remove"], FanOut(self, task_vars or {}).ask)
            answers |= remove_objects(chosen["objects"], runs_dir)
            findings = note(runs_dir, answers, chosen["records"], time.time())
            if findings:
                text = render(findings, "{count} {findings}: not everything could be removed.")
                return {**result, "failed": True, "msg": text}
        display.display(chosen["text"])
        return result
