# SPDX-License-Identifier: Apache-2.0
"""Decide whether a job hangs. If it does, or if its time is up, all nodes first take stacks of their ranks.

Times are seconds on the head's monotonic clock.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ....base.shapes import Message
from ..logs import stacks
from ..logs.hang import Watch, printing_text, silence_text
from ..logs.stacks import MAX_LINE
from .node_reports import leading
from .orders import Now

# How long nodes have to take stacks; the job ends without the stacks of nodes that have not sent them by then.
ANSWER_S = 20.0

Ranks = list[dict[str, Any]]


class HangWatch:
    """Whether a job hangs, and where its ranks are then."""

    def __init__(self, node_plan: Message, now: float, previous: Mapping[str, Any] | None = None) -> None:
        """Take the node plan of the head; `previous` is `recorded` before a reboot."""
        self._own, self.world_size = node_plan["host"], node_plan["world_size"]
        self._watch = Watch(node_plan.get("hang"), now)
        # The newest finished checkpoint, and the lines of progress of each node.
        self._saved: Any = None
        self._steps: dict[str, int] = {}
        # The last line of rank 0 where no progress is read, and whether such lines look like progress.
        self.printing: Message | None = None
        # The number of the last order to take stacks, since when it is open, and the stacks that arrived for it.
        self._number = 0
        self._since: float | None = None
        self._stacks: dict[str, Ranks] = {}
        # The groups of the last hang, for the record of the run.
        self.recorded = previous
        # A silence that ends nothing (monitor_files.NO_PROGRESS).
        self.noted: Message | None = None

    def begin(self, now: float, reports: Collection[Message] = ()) -> None:
        """Note that an attempt begins, or is about to. What `reports` of the nodes have is of earlier attempts."""
        if reports:
            self._watch_progress(reports, now)
        self._watch.begin(now)
        self._since = self.noted = None

    @property
    def number(self) -> int:
        """Return the number of the open order to take stacks; 0 without one."""
        return self._number if self._since is not None else 0

    def order(self, host: str) -> int:
        """Return the number of the order that a node has not answered; 0 without one."""
        return self.number if host not in self._stacks else 0

    def receive(self, host: str, number: int, ranks: Ranks) -> None:
        """Take the stacks of a node's ranks."""
        if number == self._number:
            self._stacks[host] = ranks

    def decide(
        self,
        reports: Collection[Message],
        members: Sequence[str],
        now: Now,
        time_up: bool = False,
        saved: Mapping[str, Any] | None = None,
    ) -> Message | None:
        """Return the failure of a job that hangs once it is known where its ranks are; None as long as it does not.

        A job whose time is up counts as one that hangs. Where no limit ends the job, its stacks are noted once. `saved`
        is the newest finished checkpoint.
        """
        self._watch_progress(reports, now.s)
        if saved and saved != self._saved:
            self._watch.finish_save(now.s)
        self._saved = saved
        overdue = self._watch.overdue(now.s, time_up)
        if overdue is None:
            self._since = self.noted = None
            return None
        ends = time_up or self._watch.ends
        if self.noted and not ends:
            return None
        if self._since is None:
            self._number, self._since, self._stacks = self._number + 1, now.s, {}
        silent = [host for host in members if host not in self._stacks]
        if silent and now.s - self._since < ANSWER_S:
            return None
        found = {**overdue, **self._where(reports, silent, now.epoch_s)}
        if ends:
            return {"kind": "timed_out" if time_up else "hung", **found}
        self._since, self.noted = None, {"time": now.epoch_s, **found}
        return None

    def silence(self, now: float, restarts: bool) -> str:
        """Return for how long nothing new came, once that is unusual, and what follows; `restarts`: one is left."""
        silence = self._watch.silence(now)
        return silence_text(silence, restarts, bool(self.number)) if silence else ""

    def _watch_progress(self, reports: Collection[Message], now: float) -> None:
        # Before any progress is read, what rank 0 prints is a sign of life.
        chosen = leading(reports)
        progress = [report["progress"] for report in ([chosen] if chosen else reports) if "progress" in report]
        names = ("lines", "changes", "saves", "alike")
        lines, changes, saves, alike = (sum(each.get(name, 0) for each in progress) for name in names)
        # Whichever rank prints a step: the log of another one may be gone.
        every = {report["host"]: report["progress"] for report in reports if "progress" in report}
        self._steps.update({host: each.get("steps", each["points"]) for host, each in every.items()})
        steps = sum(self._steps.values())
        self._watch.see(lines, steps, any(each["pausing"] for each in progress), now, changes, saves, alike)
        unread, last = self._watch.unread(now), next((each["last"] for each in progress if each["last"]), "")
        shown = last and (unread or not chosen)
        self.printing = {"text": printing_text(last, unread), "unread": unread} if shown else None

    def _where(self, reports: Collection[Message], silent: Sequence[str], epoch_s: float) -> Message:
        """Return where the ranks are, and which one is not where the others are."""
        groups = stacks.groups(self._stacks)
        self.recorded = stacks.recorded(groups, epoch_s) if groups else None
        host, rank = stacks.odd_one(groups)
        odd = next((group.text()[:MAX_LINE] for group in groups if group.odd), "")
        left = stacks.left_early(self._stacks, [report["well"] for report in reports if report.get("well")])
        if left:
            left = {**left, "before_s": max(0, round(epoch_s - left["time"]))}
        if left and not odd and stacks.all_wait(self._stacks):
            host, rank, odd = left["host"], left["rank"], stacks.left_text(left, True)
        missing = dict.fromkeys(silent, f"no stacks within {ANSWER_S:.0f} s")
        lines = stacks.lines(self._stacks, self.world_size, missing, left)
        return {
            "host": host or self._own,
            "rank": rank,
            "groups": [line[:MAX_LINE] for line in lines],
            **({"reason": odd} if odd else {}),
        }
