# SPDX-License-Identifier: Apache-2.0
"""The last report of each node of a job, as the head has received them. Times are seconds."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ....base.shapes import Message
from ..logs import progress
from ..logs.failures import failure_text
from .daemon_requests import Daemons
from .orders import Now
from .restarts import WHOLE, Restarts

# Fields of a report that need a decision at once.
NEWS = (
    *("ranks_running", "rankless", "failures", "attempts", "ready_for", "cannot_write", "excluded", "left"),
    *("asks", "daemons"),
)
# Reports of a node that tell its clock.
_CLOCKS = 10


def leading(reports: Iterable[Message]) -> Message:
    """Return the report of the node with the rank whose progress counts; an empty one where none printed any."""
    # A node whose ranks have other numbers now reports its last metrics without a rank: what rank 0 prints goes first.
    ordered = sorted(reports, key=lambda report: report.get("progress_rank") is not None)
    by_rank = {
        report.get("progress_rank") or 0: report
        for report in ordered
        if report.get("progress_rank") is not None or report.get("metrics")
    }
    points = {rank: max(1, report.get("progress", {}).get("points", 0)) for rank, report in by_rank.items()}
    rank = progress.leading(points)
    return {} if rank is None else by_rank[rank]


class NodeReports:
    """The last report of each node, and when the head last received something from it."""

    def __init__(self, node_plan: Message, restarts: Restarts, started_s: float) -> None:
        """Take the node plan of the head, and the restarts, which know the members."""
        self._plan, self._own, self._restarts, self._started_s = node_plan, node_plan["host"], restarts, started_s
        self.silent_after_s = float(node_plan["silent_after_s"])
        self.last: dict[str, Message] = {}
        self.last_contact: dict[str, float] = {}
        self.daemons = Daemons(node_plan)
        # Nodes that go down.
        self.leaving: set[str] = set()
        # How far the clock of each node was from the head's when its last reports came.
        self._clocks: dict[str, deque[float]] = {}
        # The last metrics, as a node that printed them may be replaced.
        self._metrics: dict[str, Any] = {}

    def take(self, host: str, report: Message, now: Now) -> bool:
        """Take a report; return whether it needs a decision at once."""
        previous, failures = self.last.get(host, {}), report.get("failures")
        if failures and self._plan.get("ranks_of"):
            report = {**report, "failures": [self._on_its_node(failure) for failure in failures]}
        self.last[host] = report
        self.daemons.receive(host, report, self._restarts.members[0], self._restarts.attempts(host))
        if report.get("ready_for"):
            self.leaving.discard(host)
        if host != self._own and "time" in report:
            self._clocks.setdefault(host, deque(maxlen=_CLOCKS)).append(report["time"] - now.epoch_s)
        return any(report.get(key) != previous.get(key) for key in NEWS)

    def _on_its_node(self, failure: Message) -> Message:
        """Return the failure of a rank of mpirun with the node that has it."""
        members, fewer = self._restarts.members, self._restarts.fewer
        by_host = zip(members, (self._plan["ranks_of"].get(host, ()) for host in self._plan["hosts"]))
        ranks_of = fewer.ranks_of(members) if fewer.world_size else dict(by_host)
        host = next((host for host in ranks_of if failure.get("rank") in ranks_of[host]), failure["host"])
        return {**failure, "host": host}

    def shift_contacts(self, slept_s: float, now: float) -> None:
        """Do not count the time for which the head was suspended as silence of the nodes."""
        self.last_contact = {host: min(at + slept_s, now) for host, at in self.last_contact.items()}

    def of_members(self) -> dict[str, Message]:
        """Return the reports of members; what a spare sent before it had its place is left out."""
        found = {host: self.last[host] for host in self._restarts.members if host in self.last}
        return {host: report for host, report in found.items() if report.get("place") == self._restarts.place(host)}

    def current(self) -> dict[str, Message]:
        """Return the reports of members that belong to the present attempt."""
        return {
            host: report
            for host, report in self.of_members().items()
            if report.get("attempts", {WHOLE: 0}) == self._restarts.attempts(host)
        }

    def ranks_done(self, current: Mapping[str, Message]) -> bool:
        """Return whether all ranks have ended; `current` are the reports of the present attempt."""
        return len(current) == len(self._restarts.members) and all(report.get("done") for report in current.values())

    def failures(self, current: Mapping[str, Message]) -> list[Message]:
        """Return the failures of an attempt; once all ranks ended, only those of processes with ranks."""
        found = [record for report in current.values() for record in report.get("failures", ())]
        return [record for record in found if record["ranks"]] if self.ranks_done(current) else found

    def reports_in_time(self, host: str, now: float) -> bool:
        """Return whether a node has reported lately."""
        return self.silent_for(host, now) <= self.silent_after_s

    def silent_for(self, host: str, now: float) -> float:
        """Return how long a node has not reported: since the head's start where it never has."""
        return now - self.last_contact.get(host, self._started_s)

    def absent(self) -> list[str]:
        """Return the members that never reported."""
        return [host for host in self._restarts.members if host not in self.last_contact]

    def _done(self) -> set[str]:
        """Return the nodes whose ranks all ended well; a node whose ranks belong to another one (mpirun) is needed."""
        return {host for host, report in self.last.items() if report.get("done") and not report.get("idle")}

    def gone(self, connected: set[str]) -> list[str]:
        """Return the members that have reported, are still needed and have closed their connections."""
        here = {self._own, *connected} | self._done()
        return [host for host in self._restarts.members if host in self.last_contact and host not in here]

    def unheard_since(self, at: float) -> list[str]:
        """Return the members that have reported, are still needed and have not reported after this time."""
        needed = {host for host in self._restarts.members if host != self._own} - self._done()
        return [host for host in needed if self.last_contact.get(host, math.inf) <= at]

    def silence(self, now: float) -> Message | None:
        """Return the failure `silent` of the needed members that are late; None without any.

        Late is a member after half of the limit: they may have frozen together. `host` is silent for longest; if more
        are late, `hosts` are all and `least_s` is the shortest time.
        """
        needed = self.last_contact.keys() - self._done()
        silent_s = {host: self.silent_for(host, now) for host in self._restarts.members if host in needed}
        late = {host: round(since) for host, since in silent_s.items() if since > self.silent_after_s / 2}
        if not late:
            return None
        host = max(late, key=lambda each: silent_s[each])
        others = {"hosts": list(late), "least_s": min(late.values())} if len(late) > 1 else {}
        return {"kind": "silent", "host": host, "after_s": late[host], **others}

    def leading(self) -> Message:
        """Return the report of the member with the rank whose progress counts."""
        return leading(self.of_members().values())

    def metrics(self) -> dict[str, Any]:
        """Return the last value of each metric."""
        self._metrics = self.leading().get("metrics") or self._metrics
        return self._metrics

    def first(self, name: str) -> Any:
        """Return the first value that a report has for this field; None where none has one."""
        return next(filter(None, (report.get(name) for report in self.last.values())), None)

    def folder_gone(self) -> Message | None:
        """Return the failure of a member that has lost the job's folder; None where none has."""
        return next(filter(None, (self.last.get(host, {}).get("folder_gone") for host in self._restarts.members)), None)

    def checkpoints(self) -> Message | None:
        """Return the state of the job's checkpoints, from the node of rank 0; None where they are not watched."""
        place = str(self._plan.get("checkpoints") or "")
        host = self._restarts.members[0]
        found = self.of_members().get(host, {}).get("checkpoints")
        return {"place": place, "host": host, **found} if place and found else None

    def saving(self, now: float, connected: Collection[str]) -> bool:
        """Return whether ranks of a node that is there may save before they end."""
        there = (host for host in self._restarts.members if host in connected or host == self._own)
        return any(not self.last.get(host, {}).get("left") for host in there if self.reports_in_time(host, now))

    def obstacle(self, host: str, now: float) -> str:
        """Return why a node is not ready for a restart."""
        report = self.last.get(host, {})
        if host in self.leaving:
            return failure_text({"kind": "rebooted", "host": host})
        if not self.reports_in_time(host, now):
            return failure_text({"kind": "silent", "host": host, "after_s": round(self.silent_for(host, now))})
        if report.get("excluded"):
            return str(report["excluded"]["reason"])
        held = report.get("held")
        return f"devices not free: {held}" if held else "it still runs a part of the last attempt"

    def waiting(self, now: float, connected: Collection[str]) -> list[str]:
        """Return the nodes that were left out and could take part again: they follow the attempts of the others."""
        return [
            host
            for host in self._restarts.fewer.left_out
            if host in connected
            and self.reports_in_time(host, now)
            and self.last.get(host, {}).get("attempts") == self._restarts.attempts(host)
        ]

    def asked(self) -> dict[str, Message]:
        """Return how the ranks left that handle the stop signal, by host: also of a node that was replaced since."""
        ended = self._restarts.whole - (self._restarts.gathering_since is not None)
        there = {host: self.last[host] for host in self._restarts.replaced if host in self.last}
        replaced = {host: each for host, each in there.items() if each.get("attempts", {}).get(WHOLE) == ended}
        return {host: each["asked"] for host, each in {**replaced, **self.of_members()}.items() if each.get("asked")}

    def in_the_way(self) -> tuple[str, str, str]:
        """Return a node that a restart waits for, `held` by its devices or `excluded` by its health check, and why."""
        for host in self._restarts.members if self._restarts.gathering_since is not None else ():
            report = self.last.get(host, {})
            if report.get("held"):
                return host, "held", str(report["held"])
            if report.get("excluded"):
                return host, "excluded", str(report["excluded"]["reason"])
        return "", "", ""

    def suspects(self) -> dict[str, str]:
        """Return the members that passed their health check but lost a link, or whose clock is off, with the reason."""
        noted = {host: str(self.last[host].get("suspect") or "") for host in self._restarts.members}
        return {**{host: text for host, text in noted.items() if text}, **self._clocks_off()}

    def _clocks_off(self) -> dict[str, str]:
        """A report that was long on its way seems to be of an earlier time, so the latest counts."""
        if not self._plan.get("health_gate") or not self._restarts.spares:
            return {}
        # Few monitors ever need it, and all would load it.
        from ....cluster.clocks import MAX_APART_S, clocks_apart

        latest = {host: max(self._clocks[host]) for host in self._restarts.members if host in self._clocks}
        offsets = {host: {"offset_s": off, "margin_s": 0.0} for host, off in {self._own: 0.0, **latest}.items()}
        found = clocks_apart(offsets, MAX_APART_S)
        off = {host: f"clock: {found.apart[host]:+.0f} s from the median of the nodes" for host in found.odd}
        return {host: text for host, text in off.items() if host != self._own}
