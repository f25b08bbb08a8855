# SPDX-License-Identifier: Apache-2.0
"""Watch a job from the controller until it is over. Documentation: library/job_watch.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ansible.module_utils.trainyard.cluster.unreachable import reason
from ansible.module_utils.trainyard.findings.findings import failure
from ansible.module_utils.trainyard.job.run import log_lines as following
from ansible.module_utils.trainyard_controller import interrupts
from ansible.module_utils.trainyard_controller.fan_out import FanOut, end_visits
from ansible.module_utils.trainyard_controller.live_page import LivePage
from ansible.module_utils.trainyard_controller.scheduler_clients import Ask
from ansible.module_utils.trainyard_controller.watching import ExternalWatch, LeftError, Lines, OverSsh, Watched, follow
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

display = Display()
HEADLINE = "{count} {findings}: the job goes on, and is not watched."


class ActionModule(ActionBase):
    """Ask the head node or the scheduler until the job ends."""

    BYPASS_HOST_LOOP = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return `lost`: why nobody could be asked any more, or ""; and `goes_on` where it was left while it runs."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        run_dir = Path(self._task.args["run_dir"])
        plan = json.loads((run_dir / "plan.json").read_text())
        nodes = FanOut(self, task_vars or {})
        lines, page, given = None, None, self._task.args
        findings = following.findings(plan, given.get("follow"), bool(given.get("live")))
        if findings:
            return {**result, **failure(findings, HEADLINE)}
        if given.get("follow") not in (None, ""):
            logs, _ = following.logs(plan, following.parse_ranks(given["follow"], plan["world_size"])[0])
            # The head is asked for them while it is asked for the job: by connections of their own.
            lines = Lines(plan, logs, FanOut(self, task_vars or {}).ask)
        if given.get("live"):
            page = LivePage(plan, run_dir, nodes.ask)
            display.display(f"  page        {page.path}")

        def watched(ask: Ask) -> Watched:
            return ExternalWatch(plan, run_dir, ask) if "engine" in plan else OverSsh(plan, ask)

        told: dict[str, Any] = {"goes_on": False}
        try:
            told["lost"] = follow(
                watched(nodes.ask), nodes.forget, display.display, lines, page, interrupted=interrupts.noted
            )
        except LeftError:
            # The connection to the head is still in use: this takes another one.
            found = watched(FanOut(self, task_vars or {}).ask).look(0.0)
            known = "state" in found
            told["goes_on"] = not known or found["state"] in ("pending", "running")
            told["lost"] = "" if known else (reason(found) or "no answer")
            end_visits()
        return {**result, "changed": False, **told}
