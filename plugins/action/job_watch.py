# SPDX-License-Identifier: Apache-2.0
"""Watch a job from the controller until it is over. Documentation: library/job_watch.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ansible.module_utils.trainyard_controller.fan_out import FanOut
from ansible.module_utils.trainyard_controller.watching import Handed, OverSsh, Watched, follow
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

display = Display()


class ActionModule(ActionBase):
    """Ask whoever knows until the job is over."""

    BYPASS_HOST_LOOP = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return `lost`: why nobody could be asked any more, or ""."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        run_dir = Path(self._task.args["run_dir"])
        plan = json.loads((run_dir / "plan.json").read_text())
        nodes = FanOut(self, task_vars or {})
        job: Watched = Handed(plan, run_dir, nodes.ask) if "engine" in plan else OverSsh(plan, nodes.ask)
        return {**result, "changed": False, "lost": follow(job, nodes.forget, display.display)}
