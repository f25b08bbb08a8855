# SPDX-License-Identifier: Apache-2.0
"""Ask all nodes of a job, or its scheduler, how it is, and bring its logs. Documentation: library/job_collect.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ansible.module_utils.trainyard_controller import collecting
from ansible.module_utils.trainyard_controller.fan_out import FanOut
from ansible.module_utils.trainyard_controller.run_folder import NotWrittenError
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """One visit to each node; with `stop` the job is ended there first."""

    BYPASS_HOST_LOOP = True
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return `answers` of all hosts, without the logs, which stand in the run's folder then."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        given, run_dir = self._task.args, Path(self._task.args["run_dir"])
        wanted = collecting.Wanted(
            log_limit=int(given["log_limit"]),
            asked=given["asked"],
            stop=bool(given["stop"]),
            check=self._task.check_mode,
            user=given["user"],
            not_started=given.get("not_started") or {},
        )
        plan = json.loads((run_dir / "plan.json").read_text())
        try:
            return {**result, **collecting.collect(plan, run_dir, FanOut(self, task_vars or {}).ask, wanted)}
        except NotWrittenError as error:
            return {**result, **error.failure(run_dir)}
