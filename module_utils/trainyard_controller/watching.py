# SPDX-License-Identifier: Apache-2.0
"""Watch a job from the controller: a line of progress each round, until the job is over.

Over ssh only the head node is asked; its monitor knows of all others. So watching costs the same for 4 and for 4,000
nodes, and a watcher that is interrupted changes nothing for the job. Elsewhere it is the scheduler that is asked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from ..trainyard.cluster.no_answer import reason
from .scheduler_clients import Ask, handed

# A head that cannot be asked for so long is given up here; its nodes have given it up before (SILENT_AFTER_S).
GIVE_UP_S = 20.0
# Nobody else ends a job for want of a watcher.
GIVE_UP_SCHEDULER_S = 60.0


def pause(elapsed_s: float) -> float:
    """Seconds between two lines: close at first, so that one sees it run, then further apart."""
    return 2.0 if elapsed_s < 60 else 10.0 if elapsed_s < 1800 else 30.0


class Watched(Protocol):
    """A job that is watched; `host` is who is asked, and `patience_s` how long it may give no answer."""

    host: str
    patience_s: float

    def look(self, wait_s: float) -> Mapping[str, Any]:
        """Return `state`, `line` and `told` after `wait_s` seconds or at its end; without `state` why there is none."""


class OverSsh:
    """A job over ssh: its head waits for the end, and says at once when it is there."""

    def __init__(self, plan: Mapping[str, Any], ask: Ask) -> None:
        """Take the plan; a head that was lost may come back while restarts are left."""
        self.host, self._ask = plan["head"]["host"], ask
        self._job = {"job_id": plan["job_id"], "job_dir": plan["job_dir"]}
        self._rejoin_s = float(plan["rejoin_s"]) if plan["max_restarts"] else 0.0
        self.patience_s = GIVE_UP_S + self._rejoin_s
        self._alive = time.monotonic()

    def look(self, wait_s: float) -> Mapping[str, Any]:
        """Ask the head, whose monitor knows of all others."""
        found = self._ask("state", {self.host: {**self._job, "wait_s": wait_s}}, limit_s=wait_s + 30)[self.host]
        if "known" not in found:
            self._alive = time.monotonic() + 1
            return found
        state = "over"
        if found["monitor_alive"]:
            self._alive, state = time.monotonic(), "running"
        elif time.monotonic() - self._alive < self._rejoin_s:
            # A head that has just come back answers before its monitor runs again.
            time.sleep(1)
            state = "running"
        if (found.get("cluster") or {}).get("end"):
            state = "over"
        return {"state": state, "line": found.get("line", ""), "told": found.get("restarts", ())}


class Handed:
    """A job that a scheduler was handed: it serves everybody, so it is asked less often than a monitor of our own."""

    patience_s = GIVE_UP_SCHEDULER_S

    def __init__(self, plan: dict[str, Any], run_dir: Path, ask: Ask) -> None:
        """Take the plan and the folder of the run."""
        self.host = plan["engine"]["submit_host"]
        self._job, self._asked = handed(plan, run_dir.parent, ask), False

    def look(self, wait_s: float) -> Mapping[str, Any]:
        """Ask the scheduler; the first time at once."""
        if self._asked:
            time.sleep(max(3.0, wait_s))
        self._asked = True
        found = self._job.state(waits=True)
        if "state" not in found and not found.get("unreachable"):
            return {"state": "unknown", "line": "", "why": reason(found) or "no answer"}
        return found


def follow(job: Watched, forget: Callable[[str], None], show: Callable[[str], None]) -> str:
    """Show how a job gets on until it is over; returns why that is not known any more, or ""."""
    begun = answered = time.monotonic()
    said, told = "", 0
    while True:
        found = job.look(pause(time.monotonic() - begun))
        if "state" not in found:
            if time.monotonic() - answered > job.patience_s:
                return reason(found) or "no answer"
            forget(job.host)
            time.sleep(1)
            continue
        answered = time.monotonic()
        for event in found.get("told", ())[told:]:
            show(f"  {event}")
        told = max(told, len(found.get("told", ())))
        # Why a job waits is said when it changes; progress each time.
        if found["line"] and (found["line"] != said or found["state"] == "running"):
            show(f"  {found['line']}")
            said = found["line"]
        if found["state"] not in ("pending", "running"):
            return str(found.get("why", ""))
