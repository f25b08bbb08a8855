# SPDX-License-Identifier: Apache-2.0
"""Read the state of a job, and collect its logs. Documentation: library/job_collect.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.module_utils.trainyard_controller.action_plugin import Documented
from ansible.module_utils.trainyard_controller.collecting import Request, collect
from ansible.module_utils.trainyard_controller.saved_state import read_plan


class ActionModule(Documented):
    def answer(self, given: dict[str, Any]) -> dict[str, Any]:
        run_dir = Path(given.pop("run_dir"))
        request = Request(purpose=given.pop("asked"), check=self._task.check_mode, **given)
        plan = read_plan(run_dir)
        return collect(plan, run_dir, self.fan_out().ask, request)
