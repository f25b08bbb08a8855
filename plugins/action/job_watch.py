# SPDX-License-Identifier: Apache-2.0
"""Watch a job from the controller until it ends. Documentation: library/job_watch.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.module_utils.trainyard.cluster.unreachable import reason
from ansible.module_utils.trainyard.findings.findings import FindingsError, UnusableError
from ansible.module_utils.trainyard.job.run import interrupts as interrupted
from ansible.module_utils.trainyard.job.run import log_lines
from ansible.module_utils.trainyard.report.next_step import next_step
from ansible.module_utils.trainyard_controller import interrupts
from ansible.module_utils.trainyard_controller.action_plugin import Documented
from ansible.module_utils.trainyard_controller.fan_out import FanOut, end_visits
from ansible.module_utils.trainyard_controller.inventory_options import inventory_given
from ansible.module_utils.trainyard_controller.live_page import LivePage
from ansible.module_utils.trainyard_controller.saved_state import read_plan
from ansible.module_utils.trainyard_controller.scheduler_clients import Ask, asked_of
from ansible.module_utils.trainyard_controller.watching import ExternalWatch, LeftError, Lines, OverSsh, Watched, follow


class ActionModule(Documented):
    def answer(self, given: dict[str, Any]) -> dict[str, Any]:
        run_dir = Path(given["run_dir"])
        plan = read_plan(run_dir)
        nodes = self.fan_out()
        lines, page, show = None, None, self._display.display

        def asking(fan_out: FanOut) -> Ask:
            return asked_of(plan, run_dir, fan_out.ask)

        findings = log_lines.findings(plan, given["follow"], given["live"])
        if findings:
            raise FindingsError(findings, "{count} {findings}: the job goes on, and is not watched.")
        if given["follow"] not in (None, ""):
            logs = log_lines.logs(plan, log_lines.parse_ranks(given["follow"], plan["world_size"])[0])
            # The head is queried for lines and for the job at the same time, so lines need their own connections.
            lines = Lines(plan, logs, asking(self.fan_out()))
        if given["live"]:
            page = LivePage(plan, run_dir, asking(nodes))
            show(f"  page        {page.path}")

        def watched(fan_out: FanOut) -> Watched:
            if "engine" in plan:
                return ExternalWatch(plan, run_dir, fan_out.ask)
            return OverSsh(plan, fan_out.ask, fan_out.forget)

        waits = {"job_id": plan["job_id"], "state": "running"}
        hint = "  next: {}:\n    {}".format(*next_step(waits, plan.get("launch") or {}, stuck=True))
        try:
            lost = follow(watched(nodes), nodes.forget, show, lines, page, interrupts.leaves, hint)
        except LeftError:
            # The connection to the head is still in use: this takes another one.
            found = watched(self.fan_out()).read(0.0)
            end_visits()
            if "state" not in found:
                return {"goes_on": True, "lost": reason(found) or "no answer"}
            return {"goes_on": found["state"] in ("pending", "running"), "lost": ""}
        if lost and not given["record"]:
            how = interrupted.commands(plan["job_id"], inventory_given())
            raise UnusableError(interrupted.goes_on(plan["job_id"], how, lost))
        return {"goes_on": False, "lost": lost}
