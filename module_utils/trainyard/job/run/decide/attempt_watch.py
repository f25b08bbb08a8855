# SPDX-License-Identifier: Apache-2.0
"""Find out how the present attempt of a job ends, by the reports of its nodes. Times are seconds."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from ....base.shapes import Message
from ..logs import causes, failures
from ..measure import goodput, worlds
from ..measure.slow_ranks import SlowRanks
from .hang_watch import HangWatch
from .node_reports import NodeReports, leading
from .orders import Now
from .restarts import Restarts

# How often nodes report.
REPORT_S = 1.0
# A longer time between two decisions means that the head was suspended.
SUSPENDED_S = 1.0
# Failures that arrive within this time of the first one are considered together: the cause may be reported second.
GRACE_S = 1.0
# How long nodes may take to start one after another before a missing one counts as absent.
JOIN_S = 120.0
# How long processes without ranks may take to end after the last rank did.
RANKLESS_S = 15.0


class Local(NamedTuple):
    """The knowledge of the head's own node at the time of a decision."""

    # Nodes with an open connection.
    connected: Collection[str] = ()
    # Failures of ranks that MindSpore's scheduler misses.
    missed: Sequence[Message] = ()
    # The order PollCheckpoints was carried out for this decision.
    polled: bool = False


class Result(NamedTuple):
    """How an attempt ends. A failure that is not `final` is answered by a restart while some are left."""

    state: str
    failure: Message
    found: Sequence[Message] = ()
    final: bool = False
    after_s: float | None = None

    @property
    def details(self) -> dict[str, Any]:
        """Return what the end of the job notes."""
        after = {} if self.after_s is None else {"after_s": self.after_s}
        return {**after, **({"failure": self.failure} if self.failure else {})}


class AttemptWatch:
    """The checks of a running attempt: ended and failed ranks, absent and silent nodes, a suspended head, a hang."""

    def __init__(
        self,
        node_plan: Message,
        started_s: float,
        restarts: Restarts,
        nodes: NodeReports,
        hang: HangWatch,
        slow_ranks: SlowRanks,
    ) -> None:
        """Take what the head knows of the job."""
        self._plan, self._started_s, self._restarts, self._nodes = node_plan, started_s, restarts, nodes
        self._hang, self._slow_ranks = hang, slow_ranks
        # The last decision, the end of the last suspension, and how long that was.
        self._decided_at: float | None = None
        self._woke_at, self._suspended_s = 0.0, 0.0
        self._asked_for_worlds = worlds.asked_for(node_plan)
        # How nodes train each for itself (worlds.NOTED), since when, and when the first loss came after that.
        self.apart: Message | None = None
        self._apart_since, self._loss_at = 0.0, math.inf
        self.begin()

    def begin(self) -> None:
        """Begin an attempt."""
        self._first_failure_at: float | None = None
        self._ranks_done_at: float | None = None

    def time_up(self, now: float) -> bool:
        """Return whether the job's time is up."""
        return bool(now - self._started_s > self._plan["timeout_s"])

    def check(self, now: Now, local: Local) -> Result | None:
        """Return how the attempt ends; None as long as it goes on."""
        return self._suspension(now.s) or self._ranks(now, local)

    def _suspension(self, now: float) -> Result | None:
        """Find out whether the head was suspended: then it was not the others that were silent."""
        slept = now - (now if self._decided_at is None else self._decided_at)
        self._decided_at = now
        if slept > self._nodes.silent_after_s:
            return self._frozen(slept)
        if slept > SUSPENDED_S:
            self._woke_at, self._suspended_s = now, slept
            self._nodes.shift_contacts(slept, now)
        return None

    def _frozen(self, slept: float) -> Result:
        return Result("failed", {"kind": "frozen", "host": self._plan["host"], "after_s": round(slept)})

    def _ranks(self, now: Now, local: Local) -> Result | None:
        """Find out whether all ranks have ended, or one has failed."""
        no_folder = self._nodes.folder_gone()
        if no_folder and self._restarts.gathering_since is None:
            # Ranks that fail there, or lose a peer there, are not to blame.
            return Result("failed", no_folder)
        current = self._nodes.current()
        reports = list(current.values())
        pace = leading(reports).get("pace")
        resumed = next(filter(None, (report.get("resumed") for report in reports)), "")
        self._restarts.keep_pace(pace, now.s, resumed)
        ranks_done = self._nodes.ranks_done(current)
        rankless = sum(report.get("rankless", 0) for report in reports)
        found = self._nodes.failures(current)
        if found:
            return self._cause(now.s, found, current, local, ranks_done and not rankless)
        if ranks_done:
            self._ranks_done_at = self._ranks_done_at or now.s
            over = not rankless or now.s - self._ranks_done_at >= RANKLESS_S
            return Result("succeeded", {}, final=True) if over else None
        self.begin()
        ends = self._absence(now.s) or self._bad_loss() or self._progress(reports, pace, now)
        return ends or self._worlds(current, now.s)

    def _cause(
        self, now: float, found: Sequence[Message], current: Mapping[str, Message], local: Local, over: bool
    ) -> Result | None:
        """Find the cause of failures; None while another failure may be it, or a node that may be lost."""
        self._first_failure_at = self._first_failure_at or now
        well = [report["well"] for report in current.values() if report.get("well")]
        full = {host: report["full"] for host, report in current.items() if report.get("full")}
        gone, unheard = self._nodes.gone(set(local.connected)), self._nodes.unheard_since(self._first_failure_at)
        # A node whose power is off closes no connection: it is only silent.
        silent = self._absence(now) if unheard else None
        failures_found = [*found, *local.missed]
        away = bool(gone or unheard)
        lost = silent.failure if silent else None
        cause = causes.blame(failures_found, well, gone, self._plan.get("addresses"), full, away, lost) or {}
        decided = over or failures.is_beyond_doubt(cause) or now - self._first_failure_at >= GRACE_S
        waits = bool(unheard) and causes.lost_unknown(cause) and self._restarts.gathering_since is None
        return Result("failed", cause, found) if decided and not waits else None

    def _absence(self, now: float) -> Result | None:
        """Find nodes that are not there. During a restart a node may be away for `rejoin_s`."""
        if self._restarts.gathering_since is not None:
            return None
        absent = self._nodes.absent()
        if absent and now - self._started_s > JOIN_S:
            return Result("failed", {"kind": "absent", "host": absent[0], "after_s": round(JOIN_S)}, final=True)
        silent, limit_s = self._nodes.silence(now), self._nodes.silent_after_s
        if not silent or self._nodes.reports_in_time(silent["host"], now):
            return None
        host = silent["host"]
        late = self._nodes.last_contact[host] <= self._woke_at + REPORT_S
        if late and self._suspended_s > limit_s - 2 * REPORT_S:
            # The node gave this one up meanwhile; all that came from it had been waiting to be read.
            return self._frozen(self._suspended_s)
        running = self._nodes.last.get(host, {}).get("ranks_running")
        return Result("failed", {**silent, "ranks_running": running})

    def _bad_loss(self) -> Result | None:
        """Find losses that are no numbers after a checkpoint, if a restart without it is left."""
        restarts = self._restarts
        left = restarts.gathering_since is None and len(restarts.history) < restarts.budget
        failure = restarts.rollback.bad_loss(self._plan["host"]) if left else None
        return Result("failed", failure) if failure else None

    def _worlds(self, current: Mapping[str, Message], now: float) -> Result | None:
        """Find nodes that train each for itself. Without a loss they may still prepare the data, or evaluate."""
        if self._asked_for_worlds or len(current) < len(self._restarts.members):
            return None
        found = worlds.apart(current, str(self._plan.get("launcher") or ""))
        if self.apart and not found and any(report.get("well") or report["failures"] for report in current.values()):
            # Ranks that have ended tell nothing.
            return None
        loss = any("loss" in (report.get("metrics") or {}) for report in current.values())
        if found and not self.apart:
            self._apart_since, self._loss_at = now, -math.inf if loss else math.inf
        if loss:
            self._loss_at = min(self._loss_at, now)
        self.apart = {name: found[name] for name in ("hosts", "text", "action")} if found else None
        if not found or not found["all"]:
            return None
        waits = found["fixed"] and now - self._apart_since > worlds.NODE_S
        if not (waits or worlds.LOSS_S < now - self._loss_at < math.inf):
            return None
        why = {"host": found["hosts"][0], "hosts": found["hosts"], "reason": found["text"], "action": found["action"]}
        return Result("failed", {"kind": "apart", **why}, final=True)

    def _progress(self, reports: Sequence[Message], pace: goodput.Pace | None, now: Now) -> Result | None:
        """Find out which ranks are slow, and whether the job hangs."""
        elapsed_s = now.s - self._started_s
        gathers = self._restarts.gathering_since is not None
        if gathers or self._nodes.absent():
            self._hang.begin(now.s, list(self._nodes.of_members().values()) if gathers else ())
            self._slow_ranks.begin(now.s, elapsed_s)
            return None
        points = leading(reports).get("progress", {}).get("points", 0)
        self._slow_ranks.evaluate(now.s, elapsed_s, points=points, step_s=goodput.step_s(pace) if pace else None)
        self._hang.world_size = self._restarts.fewer.world_size or self._plan["world_size"]
        saved, members = self._restarts.saved, self._restarts.members
        hung = self._hang.decide(reports, members, now, self.time_up(now.s), saved)
        if not hung:
            return None
        failure = {**hung, "step": self._nodes.metrics().get("step")}
        if hung["kind"] == "timed_out":
            return Result("timed_out", failure, final=True, after_s=self._plan["timeout_s"])
        return Result("failed", failure)
