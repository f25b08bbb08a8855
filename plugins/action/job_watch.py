# SPDX-License-Identifier: Apache-2.0
"""Watch a job from the controller: a line of progress each round, until the job is over.

Only the head node is asked; its monitor knows of all others. So watching costs the same for 4 and for 4,000 nodes, and
a watcher that is interrupted changes nothing for the job. Documentation: library/job_watch.py.
"""

from __future__ import annotations

import time
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

display = Display()
# A head that cannot be asked for so long is given up here; its nodes have given it up before (SILENT_AFTER_S).
GIVE_UP_S = 20.0


def pause(elapsed_s: float) -> float:
    """Seconds between two lines: close at first, so that one sees it run, then further apart."""
    return 2.0 if elapsed_s < 60 else 10.0 if elapsed_s < 1800 else 30.0


class ActionModule(ActionBase):
    """Ask the head node until the job is over."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the last answer as `status`, and `lost`: why the head could not be asked any more, or ""."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        del tmp
        arguments = {"job_id": self._task.args["job_id"], "job_dir": self._task.args["job_dir"]}
        rejoin_s = float(self._task.args.get("rejoin_s", 0))
        answered = begun = alive = time.monotonic()
        status, lost, told = {}, "", 0
        while True:
            try:
                status = self._execute_module(
                    module_name="job_process_info",
                    task_vars=task_vars,
                    module_args={**arguments, "wait": pause(time.monotonic() - begun)},
                )
                if status.get("failed"):
                    return {**result, **status}
                answered = time.monotonic()
            except AnsibleConnectionFailure as error:
                lost = str(error)
                if time.monotonic() - answered > GIVE_UP_S + rejoin_s:
                    break
                self._connection.reset()
                time.sleep(1)
                alive = time.monotonic()
                continue
            cluster = status.get("cluster") or {}
            for line in status.get("restarts", ())[told:]:
                display.display(f"  {line}")
            told = max(told, len(status.get("restarts", ())))
            if status.get("line"):
                display.display(f"  {status['line']}")
            # A head that has just come back answers before its monitor runs again.
            if status["monitor_alive"]:
                alive = time.monotonic()
            elif not cluster.get("end") and time.monotonic() - alive < rejoin_s:
                time.sleep(1)
                continue
            if cluster.get("end") or not status["monitor_alive"]:
                lost = ""
                break
        return {**result, "changed": False, "lost": lost, "status": status}
