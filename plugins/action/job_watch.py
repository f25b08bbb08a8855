# SPDX-License-Identifier: Apache-2.0
"""Watch a job from the controller until it is over. Documentation: library/job_watch.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ansible.module_utils.trainyard.findings.findings import render
from ansible.module_utils.trainyard.job import following
from ansible.module_utils.trainyard_controller.fan_out import FanOut
from ansible.module_utils.trainyard_controller.live_page import LivePage
from ansible.module_utils.trainyard_controller.watching import Handed, Lines, OverSsh, Watched, follow
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

display = Display()
HEADLINE = "{count} {findings}: the job goes on, and is not watched."


class ActionModule(ActionBase):
    """Ask whoever knows until the job is over."""

    BYPASS_HOST_LOOP = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return `lost`: why nobody could be asked any more, or ""."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        run_dir = Path(self._task.args["run_dir"])
        plan = json.loads((run_dir / "plan.json").read_text())
        nodes = FanOut(self, task_vars or {})
        lines, page, given = None, None, self._task.args
        ranks, findings = following.wanted(given["follow"], plan["world_size"]) if given.get("follow") else ([], [])
        logs, refused = following.logs(plan, ranks)
        findings += refused if ranks else []
        if given.get("live"):
            fewer = "leave live out; logs.yml writes the page as it is then"
            findings += following.too_far(plan, len(plan["nodes"]), "live", fewer)
        if findings:
            return {**result, "failed": True, "msg": render(findings, HEADLINE)}
        if ranks:
            # The head is asked for them while it is asked for the job: by connections of their own.
            lines = Lines(plan, logs, FanOut(self, task_vars or {}).ask)
        if given.get("live"):
            page = LivePage(plan, run_dir, nodes.ask)
            display.display(f"  page        {page.path}")
        job: Watched = Handed(plan, run_dir, nodes.ask) if "engine" in plan else OverSsh(plan, nodes.ask)
        return {**result, "changed": False, "lost": follow(job, nodes.forget, display.display, lines, page)}
