# SPDX-License-Identifier: Apache-2.0
"""The restart policy of a job: what is started again after a failure, and how often.

A process that can come back by itself (MindSpore's scheduler) is started again alone; after any other failure, and
when a node was lost, the whole job: all processes on all nodes are ended first, then all are started, so that the new
rendezvous meets nothing of the old one. Each time counts against one budget, `job_max_restarts`.

A short attempt that gets no further than the ones before it (no step that is new) is fruitless: the next one waits,
longer each time, and after three in a row the job has failed, whatever is left of the budget: what stops it does not go
away. A long one never counts: scripts that count steps within each epoch, or print none, may have come further.

Attempts are counted for each host: {"": how often the whole job, "scheduler": how often that process alone}. A process
runs for the sum of both. Times are seconds on the head's monotonic clock unless they say otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .failure import Failure, first_failure, text
from .progress import clock, number

Attempts = dict[str, int]

# How often the whole job was started again, among the names of its processes.
WHOLE = ""
# Attempts in a row that may be fruitless, how long one may last to count as such, and for how long the next one waits
# for each after the first.
MOST_FRUITLESS, SHORT_S, PAUSE_S = 3, 600.0, 5.0


def restart_text(restart: Mapping[str, Any]) -> str:
    """Write one entry of the history as a line."""
    # Slurm does not keep when it requeued a job.
    when = f"{clock(restart['elapsed_s'])}   " if restart["elapsed_s"] is not None else ""
    step, wait_s = restart.get("step"), restart.get("wait_s")
    later = f" in {number(wait_s)} s" if wait_s else ""
    further = "no further than" if restart.get("fruitless") else "after"
    reached = "" if step is None else f" ({further} step {number(step)})"
    return f"{when}{restart['reason']}, so {restart['restarted']} starts again{later}{reached}"


def gave_up(summary: Mapping[str, Any]) -> list[str]:
    """Say that a job was not started again although restarts were left."""
    fruitless = (summary.get("failure") or {}).get("fruitless") or 0
    if fruitless < MOST_FRUITLESS or len(summary["restarts"]) >= summary["max_restarts"]:
        return []
    step = summary["restarts"][-1].get("step")
    further = "reached a step" if step is None else f"came further than step {number(step)}"
    return [f"not started again: none of the last {fruitless} attempts {further}; what stops them does not go away"]


class Restarts:
    """The head's book of restarts."""

    def __init__(self, budget: int, rejoin_s: float, known: Mapping[str, Any] | None = None) -> None:
        """Take the budget and how long a lost node may take to come back; `known` is as_dict() of an earlier head."""
        self.budget, self.rejoin_s = budget, rejoin_s
        known = known or {}
        self.history: list[dict[str, Any]] = list(known.get("history", ()))
        self._whole: int = known.get("whole", 0)
        self._alone: dict[str, Attempts] = {host: dict(names) for host, names in known.get("alone", {}).items()}
        # While all nodes end what is left of the last attempt: since when, and whether all have.
        self.gathering_since: float | None = None
        self.go = True
        # The furthest that any attempt came, as (epoch, step); how many of the last ones came no further; when the
        # present one began, on the job's clock; and when the next one may.
        self._furthest: tuple[float, float] | None = tuple(known["furthest"]) if known.get("furthest") else None
        self.fruitless: int = known.get("fruitless", 0)
        self._began_s: float = known.get("began_s", 0.0)
        self._not_before = 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return the book as it stands in cluster.json."""
        return {
            "budget": self.budget,
            "whole": self._whole,
            "alone": self._alone,
            "history": self.history,
            "gathering": self.gathering_since is not None,
            "furthest": self._furthest,
            "fruitless": self.fruitless,
            "began_s": self._began_s,
        }

    def attempts(self, host: str) -> Attempts:
        """Return what a host shall run."""
        return {WHOLE: self._whole, **self._alone.get(host, {})}

    def take(
        self,
        failures: Sequence[Failure],
        now: float,
        elapsed_s: float,
        metrics: Mapping[str, float | None] | None = None,
        first: Failure | None = None,
    ) -> bool:
        """Answer failures that were seen together with a restart; `metrics` are the last that the job has printed.

        `first` is to blame where it is none of them.

        False: the budget is used up, or too many attempts were `fruitless`; the job has failed.
        """
        first = first or first_failure(failures)
        if first is None:
            raise ValueError("no failure to answer")
        alone = [failure for failure in failures if failure.get("recover_after_s") is not None]
        if len(alone) < len(failures):
            self._weigh(metrics or {}, elapsed_s)
        if len(self.history) >= self.budget or self.fruitless >= MOST_FRUITLESS:
            return False
        record = {"elapsed_s": round(elapsed_s, 1), "reason": text(first), "failure": dict(first)}
        if len(alone) == len(failures):
            for failure in failures:
                names = self._alone.setdefault(str(failure["host"]), {})
                names[failure["process"]] = names.get(failure["process"], 0) + 1
            record["restarted"] = ", ".join(str(failure["process"]) for failure in failures)
        else:
            self._whole += 1
            self.gathering_since, self.go = now, False
            wait_s = PAUSE_S * max(0, self.fruitless - 1)
            self._not_before = now + wait_s
            self._began_s = elapsed_s + wait_s
            step = self._furthest[1] if self._furthest else None
            record.update(restarted="the whole job", step=step, fruitless=self.fruitless, wait_s=wait_s)
        self.history.append(record)
        return True

    def _weigh(self, metrics: Mapping[str, float | None], elapsed_s: float) -> None:
        """See whether the attempt that ends came further than all before it."""
        step = metrics.get("step")
        reached = None if step is None else (metrics.get("epoch") or 0.0, step)
        if reached is not None and (self._furthest is None or reached > self._furthest):
            self._furthest, self.fruitless = reached, 0
        elif elapsed_s - self._began_s > SHORT_S:
            self.fruitless = 0
        else:
            self.fruitless += 1

    def gather(self, hosts: Iterable[str], reports: Mapping[str, Mapping[str, Any]], now: float) -> list[str]:
        """Let all start once every node has ended its part; return the nodes that are not back in time."""
        if self.gathering_since is None:
            return []
        wanted = {host: self.attempts(host) for host in hosts}
        behind = [host for host, names in wanted.items() if reports.get(host, {}).get("attempts") != names]
        if not behind:
            self.gathering_since = None
        elif not self.go:
            unready = [host for host in behind if reports.get(host, {}).get("ready_for") != wanted[host]]
            self.go = not unready and now >= self._not_before
            if unready and now - self.gathering_since > self.rejoin_s:
                return unready
        return []
