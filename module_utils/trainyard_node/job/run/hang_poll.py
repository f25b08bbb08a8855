# SPDX-License-Identifier: Apache-2.0
"""The head's look at the progress of a job: where it hangs, or its time is up, all nodes take stacks of their ranks.

Times are seconds on the monotonic clock. Nothing here waits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ....trainyard.job.run import stacks
from ....trainyard.job.run.hang import Watch, printing_text
from ....trainyard.job.run.messages import Message

# How long nodes have to take stacks; the job ends without those that have not told theirs by then.
ANSWER_S = 20.0
# Characters of a line that says where ranks are.
MOST_LINE = 500

Ranks = list[dict[str, Any]]


class HangWatch:
    """Whether a job hangs, and where its ranks are then."""

    def __init__(self, spec: Message, hosts: Sequence[str], now: float) -> None:
        """Take node_plan.json of the head, and the hosts that take part, which may change."""
        self._hosts, self._own, self._world_size = hosts, spec["host"], spec["world_size"]
        self._watch = Watch(spec.get("hang"), now)
        # The last line of rank 0 where no progress is read, and whether such lines look like progress.
        self.printing: Message | None = None
        # The number of the last order to take stacks, since when it is open, and what was told for it.
        self._number = 0
        self._since: float | None = None
        self._told: dict[str, Ranks] = {}

    def begin(self, now: float) -> None:
        """Note that an attempt begins, or is about to."""
        self._watch.begin(now)
        self._since = None

    @property
    def asks(self) -> bool:
        """Tell whether nodes are taking stacks."""
        return self._since is not None

    def order(self, host: str) -> int:
        """Return the number of the order that a node has not answered; 0 where there is none."""
        return self._number if self._since is not None and host not in self._told else 0

    def hear(self, host: str, number: int, ranks: Ranks) -> None:
        """Take what a node has told for an order."""
        if number == self._number:
            self._told[host] = ranks

    def judge(
        self, reports: Iterable[Message], take: Callable[[int], Ranks | None], now: float, time_up: bool = False
    ) -> dict[str, Any] | None:
        """Return the failure of a job that hangs, once it is known where its ranks are; None as long as it does not.

        `take` takes the stacks of this node's own ranks. A job whose time is up counts as one that hangs.
        """
        reports = list(reports)
        known = [report["progress"] for report in reports if "progress" in report]
        lines, points, changes = (sum(each[name] for each in known) for name in ("lines", "points", "changes"))
        self._watch.see(lines, points, any(each["pausing"] for each in known), now, changes)
        unread, last = self._watch.unread(now), next((each["last"] for each in known if each["last"]), "")
        read = any(report.get("metrics") for report in reports)
        shown = last and (unread or not read)
        self.printing = {"text": printing_text(last, unread), "unread": unread} if shown else None
        overdue = self._watch.overdue(now, time_up)
        if overdue is None:
            self._since = None
            return None
        if self._since is None:
            self._number, self._since, self._told = self._number + 1, now, {}
        own = take(self._number)
        if own is not None:
            self._told[self._own] = own
        silent = [host for host in self._hosts if host not in self._told]
        if silent and now - self._since < ANSWER_S:
            return None
        groups = stacks.groups(self._told)
        host, rank = stacks.odd_one(groups)
        why = f"no stacks within {ANSWER_S:.0f} s"
        odd = next((group.text()[:MOST_LINE] for group in groups if group.odd), "")
        left = stacks.left_early(self._told, [report["well"] for report in reports if report.get("well")])
        if left:
            left = {**left, "before_s": max(0, round(time.time() - left["time"]))}
        if left and not odd and stacks.all_wait(self._told):
            host, rank, odd = left["host"], left["rank"], stacks.left_text(left, True)
        said = stacks.lines(self._told, self._world_size, dict.fromkeys(silent, why), left)
        return {
            "kind": "timed_out" if time_up else "hung",
            "host": host or self._own,
            "rank": rank,
            **overdue,
            "groups": [line[:MOST_LINE] for line in said],
            **({"reason": odd} if odd else {}),
        }
