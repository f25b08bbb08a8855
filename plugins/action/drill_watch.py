# SPDX-License-Identifier: Apache-2.0
"""Watch a run of a drill, and kill in it what the drill kills. Documentation: library/drill_watch.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.module_utils.trainyard.job.drill import goal
from ansible.module_utils.trainyard_controller import drilling, interrupts
from ansible.module_utils.trainyard_controller.action_plugin import OnceForAll
from ansible.module_utils.trainyard_controller.saved_state import read_plan


class ActionModule(OnceForAll):
    def answer(self, given: dict[str, Any]) -> dict[str, Any]:
        plan = read_plan(Path(given["run_dir"]))
        goal_of_run = goal.of_run(given["run"], drilling.of_record(given["drill"]))
        return drilling.watch(plan, goal_of_run, self.fan_out().ask, self._display.display, interrupts.noted)
