# SPDX-License-Identifier: Apache-2.0
"""Ask all nodes of a job how it is, and bring its logs. Documentation: library/job_collect.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ansible.module_utils.trainyard import record
from ansible.module_utils.trainyard_controller.fan_out import FanOut
from ansible.module_utils.trainyard_node.exits import read_json
from ansible.module_utils.trainyard_node.run_folder import write_logs
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """One visit to each node; with `stop` the job is ended there first."""

    BYPASS_HOST_LOOP = True
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return `answers` of all hosts, without the logs, which stand in the run's folder then."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        given, check = self._task.args, self._task.check_mode
        run_dir = Path(given["run_dir"])
        plan = json.loads((run_dir / "plan.json").read_text())
        over = record.is_final(record.read(read_json(run_dir / "summary.json")))
        shared = {
            "job_id": plan["job_id"],
            "job_dir": plan["job_dir"],
            "stop": bool(given["stop"]),
            "log_limit": int(given["log_limit"]),
            "check": check,
        }
        own: dict[str, Any] = {node["host"]: {} for node in plan["nodes"]}
        answers = FanOut(self, task_vars or {}).ask("collect", own, shared, limit_s=300)
        for answer in answers.values():
            logs = answer.pop("logs", {})
            if not check:
                write_logs(run_dir, logs, keep=over)
        return {**result, "changed": any(answer.get("changed") for answer in answers.values()), "answers": answers}
