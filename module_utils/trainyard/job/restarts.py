# SPDX-License-Identifier: Apache-2.0
"""The restart policy of a job: what is started again after a failure, and how often.

A process that can come back by itself (MindSpore's scheduler) is started again alone; after any other failure, and
when a node was lost, the whole job: all processes on all nodes are ended first, then all are started, so that the new
rendezvous meets nothing of the old one. Each time counts against one budget, `job_max_restarts`.

Attempts are counted for each host: {"": how often the whole job, "scheduler": how often that process alone}. A process
runs for the sum of both. Times are seconds on the head's monotonic clock unless they say otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .failure import Failure, first_failure, text
from .progress import clock

Attempts = dict[str, int]

# How often the whole job was started again, among the names of its processes.
WHOLE = ""


def restart_text(restart: Mapping[str, Any]) -> str:
    """Write one entry of the history as a line."""
    # Slurm does not keep when it requeued a job.
    when = f"{clock(restart['elapsed_s'])}   " if restart["elapsed_s"] is not None else ""
    return f"{when}{restart['reason']}, so {restart['restarted']} starts again"


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

    def as_dict(self) -> dict[str, Any]:
        """Return the book as it stands in cluster.json."""
        return {
            "budget": self.budget,
            "whole": self._whole,
            "alone": self._alone,
            "history": self.history,
            "gathering": self.gathering_since is not None,
        }

    def attempts(self, host: str) -> Attempts:
        """Return what a host shall run."""
        return {WHOLE: self._whole, **self._alone.get(host, {})}

    def take(self, failures: Sequence[Failure], now: float, elapsed_s: float) -> bool:
        """Answer failures that were seen together with a restart. False: the budget is used up, the job has failed."""
        if len(self.history) >= self.budget:
            return False
        first = first_failure(failures)
        if first is None:
            raise ValueError("no failure to answer")
        alone = [failure for failure in failures if failure.get("recover_after_s") is not None]
        record = {"elapsed_s": round(elapsed_s, 1), "reason": text(first), "failure": dict(first)}
        if len(alone) == len(failures):
            for failure in failures:
                names = self._alone.setdefault(str(failure["host"]), {})
                names[failure["process"]] = names.get(failure["process"], 0) + 1
            record["restarted"] = ", ".join(str(failure["process"]) for failure in failures)
        else:
            self._whole += 1
            self.gathering_since, self.go = now, False
            record["restarted"] = "the whole job"
        self.history.append(record)
        return True

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
            self.go = not unready
            if unready and now - self.gathering_since > self.rejoin_s:
                return unready
        return []
