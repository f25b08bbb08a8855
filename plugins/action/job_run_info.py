# SPDX-License-Identifier: Apache-2.0
"""Find a run among those that this controller started. Documentation: library/job_run_info.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.module_utils.trainyard_controller import run_choice, run_folder
from ansible.module_utils.trainyard_controller.action_plugin import Documented


class ActionModule(Documented):
    def answer(self, given: dict[str, Any]) -> dict[str, Any]:
        stop, ask = given["stop"], self.fan_out().ask if given["ask_nodes"] else None
        run = run_choice.find(Path(given["runs_dir"]), given["job_id"], given["job_name"], must_name=stop, ask=ask)
        if run["note"]:
            self._display.display(run["note"])
        if stop and run["over"]:
            self._display.display(f"Job {run['job_id']} had ended before.")
        elif stop:
            run["launching"] = self._stops_launch(run)
        return run

    def _stops_launch(self, run: dict[str, Any]) -> bool:
        """Stop a launch that has started nothing yet; otherwise wait until its nodes have answered."""
        job, check = f"Job {run['job_id']}", self._task.check_mode
        waits = f"{job} is being started: waiting until its nodes have answered."
        stops: bool = run["launching"]
        if not check:
            stops = run_folder.stop_launch(Path(run["run_dir"]), lambda: self._display.display(waits))
        if stops:
            how = "would be told, and end" if check else "has been told, and ends"
            self._display.display(f"{job} is not started yet: its launch {how} before it starts anything.")
        return stops
