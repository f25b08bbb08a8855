# SPDX-License-Identifier: Apache-2.0
"""Remove what was chosen, note it in runs/, and say it. Documentation: library/job_clean.py."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from ansible.module_utils.trainyard.findings.findings import failure
from ansible.module_utils.trainyard_controller.cleaning import note, record_ends, remove, remove_objects, unrecorded
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
        given = self._task.args
        runs_dir, chosen = Path(given["runs_dir"]), given["chosen"]
        result["changed"] = any(chosen[name] for name in ("remove", "objects", "records"))
        if not self._task.check_mode:
            ask = FanOut(self, task_vars or {}).ask
            names = unrecorded(chosen["remove"], chosen["objects"], chosen["records"], runs_dir)
            lines, findings = record_ends(names, runs_dir, ask, int(given["log_limit"]), Path(given["excluded_file"]))
            if lines:
                display.display("\n".join(lines))
            if findings:
                return {**result, **failure(findings, "{count} {findings}: nothing was removed.")}
            answers = remove(chosen["remove"], ask)
            answers |= remove_objects(chosen["objects"], runs_dir)
            findings = note(runs_dir, answers, chosen["records"], time.time())
            if findings:
                return {**result, **failure(findings, "{count} {findings}: not everything could be removed.")}
        display.display(chosen["text"])
        return result
