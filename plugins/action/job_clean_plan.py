# SPDX-License-Identifier: Apache-2.0
"""Decide what of ended jobs is removed from where. Documentation: library/job_clean_plan.py."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ansible.module_utils.trainyard_controller.action_plugin import OnceForAll
from ansible.module_utils.trainyard_controller.cleaning import Request, plan


class ActionModule(OnceForAll):
    def answer(self, given: dict[str, Any]) -> dict[str, Any]:
        request = Request(
            hosts=given["hosts"],
            known_hosts=given["known_hosts"],
            runs_dir=Path(given["runs_dir"]),
            state_dir=given["state_dir"],
            job_id=given.get("job_id") or "",
            days=None if given.get("days") is None else float(given["days"]),
            of_runs=bool(given.get("of_runs")),
            check=self._task.check_mode,
        )
        return asdict(plan(request, self.fan_out().ask, time.time()))
