# SPDX-License-Identifier: Apache-2.0
"""Find a run among those that this controller started. Documentation: library/job_run_info.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.module_utils.trainyard.findings.findings import FindingsError, UnusableError
from ansible.module_utils.trainyard_controller import run_choice as known_runs
from ansible.module_utils.trainyard_controller import run_folder
from ansible.module_utils.trainyard_controller.fan_out import FanOut
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

display = Display()


class ActionModule(ActionBase):
    """Read the plans of all runs; where several may run, ask their head nodes."""

    BYPASS_HOST_LOOP = True
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the run that is meant, or fail with what there is."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        given = self._task.args
        names = str(given.get("job_id") or ""), str(given.get("job_name") or "")
        stop = bool(given.get("stop"))
        ask = FanOut(self, task_vars or {}).ask if given.get("ask_nodes", True) else None
        try:
            run = known_runs.find(Path(given["runs_dir"]), *names, must_name=stop, ask=ask)
        except FindingsError as error:
            return {**result, **error.failure}
        except UnusableError as error:
            return {**result, "failed": True, "msg": str(error)}
        if run["note"]:
            display.display(run["note"])
        if stop and not run["over"]:
            run["launching"] = self._stops_launch(run)
        return {**result, **run, "changed": False}

    def _stops_launch(self, run: dict[str, Any]) -> bool:
        """Have the launch of a job end that has started nothing as yet; else wait until its nodes have answered."""
        job, run_dir = f"Job {run['job_id']}", Path(run["run_dir"])
        if self._task.check_mode:
            told = run["launching"]
        else:
            waits = f"{job} is being started: waiting until its nodes have answered."
            told = run_folder.stop_launch(run_dir, lambda: display.display(waits))
        if told:
            how = "would be told, and end" if self._task.check_mode else "has been told, and ends"
            display.display(f"{job} is not started yet: its launch {how} before it starts anything.")
        return bool(told)
