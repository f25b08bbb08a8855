# SPDX-License-Identifier: Apache-2.0
"""Watch a job from the controller: a line of progress each round, until the job is over.

Over ssh only the head node is asked; its monitor knows of all others. So watching costs the same for 4 and for 4,000
nodes, and a watcher that is interrupted changes nothing for the job. Documentation: library/job_watch.py.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from ansible.module_utils.trainyard.no_answer import reason
from ansible.module_utils.trainyard_controller.fan_out import FanOut
from ansible.module_utils.trainyard_controller.handed import handed
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

display = Display()
# A head that cannot be asked for so long is given up here; its nodes have given it up before (SILENT_AFTER_S).
GIVE_UP_S = 20.0
# Nobody else ends a job for want of a watcher.
GIVE_UP_SCHEDULER_S = 60.0


def pause(elapsed_s: float) -> float:
    """Seconds between two lines: close at first, so that one sees it run, then further apart."""
    return 2.0 if elapsed_s < 60 else 10.0 if elapsed_s < 1800 else 30.0


class ActionModule(ActionBase):
    """Ask the head node until the job is over."""

    BYPASS_HOST_LOOP = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return `lost`: why the head could not be asked any more, or ""."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        run_dir = Path(self._task.args["run_dir"])
        plan = json.loads((run_dir / "plan.json").read_text())
        nodes = FanOut(self, task_vars or {})
        if "engine" in plan:
            return {**result, "changed": False, "lost": self._follow(plan, run_dir, nodes)}
        head, job = plan["head"]["host"], {"job_id": plan["job_id"], "job_dir": plan["job_dir"]}
        rejoin_s = float(plan["rejoin_s"]) if plan["max_restarts"] else 0.0
        answered = begun = alive = time.monotonic()
        lost, told = "", 0
        while True:
            wait_s = pause(time.monotonic() - begun)
            state = nodes.ask("state", {head: {**job, "wait_s": wait_s}}, limit_s=wait_s + 30)[head]
            if "known" not in state:
                lost = str(state.get("msg") or "no answer")
                if time.monotonic() - answered > GIVE_UP_S + rejoin_s:
                    break
                nodes.forget(head)
                time.sleep(1)
                alive = time.monotonic()
                continue
            answered = time.monotonic()
            cluster = state.get("cluster") or {}
            for line in state.get("restarts", ())[told:]:
                display.display(f"  {line}")
            told = max(told, len(state.get("restarts", ())))
            if state.get("line"):
                display.display(f"  {state['line']}")
            # A head that has just come back answers before its monitor runs again.
            if state["monitor_alive"]:
                alive = time.monotonic()
            elif not cluster.get("end") and time.monotonic() - alive < rejoin_s:
                time.sleep(1)
                continue
            if cluster.get("end") or not state["monitor_alive"]:
                lost = ""
                break
        return {**result, "changed": False, "lost": lost}

    @staticmethod
    def _follow(plan: dict[str, Any], run_dir: Path, nodes: FanOut) -> str:
        """Ask the scheduler that was handed the job until it is over; returns why that says no more, or ""."""
        job = handed(plan, run_dir.parent, nodes.ask)
        begun = answered = time.monotonic()
        said, told = "", 0
        while True:
            state = job.state(waits=True)
            if state.get("unreachable") and time.monotonic() - answered < GIVE_UP_SCHEDULER_S:
                nodes.forget(plan["engine"]["submit_host"])
                time.sleep(1)
                continue
            if "state" not in state:
                return reason(state) or "no answer"
            answered = time.monotonic()
            for event in state.get("told", ())[told:]:
                display.display(f"  {event}")
            told = max(told, len(state.get("told", ())))
            # Why a job waits is said when it changes; progress each time.
            if state["line"] and (state["line"] != said or state["state"] == "running"):
                display.display(f"  {state['line']}")
                said = state["line"]
            if state["state"] not in ("pending", "running"):
                return ""
            # A scheduler serves everybody, so it is asked less often than a monitor of our own.
            time.sleep(max(3.0, pause(time.monotonic() - begun)))
