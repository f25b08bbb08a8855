# SPDX-License-Identifier: Apache-2.0
"""Decide what of ended jobs is removed from where. Documentation: library/job_clean_plan.py."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from ansible.module_utils.trainyard.findings.findings import failure
from ansible.module_utils.trainyard_controller.cleaning import Wanted, plan
from ansible.module_utils.trainyard_controller.fan_out import FanOut
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """Ask the nodes and the schedulers; nothing is removed."""

    BYPASS_HOST_LOOP = True
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return what is to go, or fail with why nothing goes."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        given = self._task.args
        wanted = Wanted(
            hosts=given["hosts"],
            known_hosts=given["known_hosts"],
            runs_dir=Path(given["runs_dir"]),
            state_dir=given["state_dir"],
            job_id=given.get("job_id") or "",
            days=None if given.get("days") is None else float(given["days"]),
            of_runs=bool(given.get("of_runs")),
            check=self._task.check_mode,
        )
        chosen = plan(wanted, FanOut(self, task_vars or {}).ask, time.time())
        if chosen.findings:
            return {**result, **failure(chosen.findings, "{count} {findings}: nothing was removed.")}
        about = {name: getattr(chosen, name) for name in ("remove", "objects", "records", "text")}
        return {**result, "changed": False, **about}
