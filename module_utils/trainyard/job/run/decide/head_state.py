# SPDX-License-Identifier: Apache-2.0
"""Decide how a job goes on: the head's state of a job, without sockets, files or a clock of its own.

Nodes report (receive), and decide() returns the orders that follow from it:

- All ranks ended well: the job has succeeded. A process without ranks keeps no job alive and spoils none.
- A rank failed, a node is silent, the job hangs: it starts again while restarts are left (restarts.py), else it has
  failed. For a restart all nodes end their part, and then start together. Spares replace nodes that are lost, that do
  not pass their health check, or whose rank fails twice in a row.
- The time is up, or somebody stopped a node: the job ends.

message_for() always holds all that a node has to do, so a node that comes back gets it, too. Times are seconds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from typing import Any

from ....base.shapes import Message
from ..logs import failures
from ..measure import goodput, saving
from ..measure.slow_ranks import SlowRanks
from .attempt_watch import JOIN_S, AttemptWatch, Local
from .hang_watch import HangWatch
from .node_reports import NodeReports
from .orders import Disconnect, End, Inform, Now, Order, PollCheckpoints, Replace
from .restarts import Restarts, cannot_go_on, leave_out, take_back, unanswered

# Where there are spares, no node has longer than this to get its devices free, or through the health check.
HELD_S = 30.0
_ALONE = Local()
# Why a node waits (NodeReports.in_the_way).
_WHY = {"held": "waits for its devices", "excluded": "does not pass the health check"}


class HeadState:
    """The state of a whole job, and the decisions about it."""

    def __init__(self, node_plan: Message, started: Now, previous: Mapping[str, Any] | None = None) -> None:
        """Take the node plan of the head; `previous` is the cluster.json of its monitor before a reboot."""
        previous = previous or {}
        self.plan, self.host, self.started = node_plan, node_plan["host"], started
        self.budget = int(node_plan.get("max_restarts", 0))
        self.restarts = Restarts(
            self.budget,
            float(node_plan.get("rejoin_s", 0)),
            previous.get("restarts"),
            node_plan["hosts"],
            node_plan.get("spares", ()),
            node_plan.get("restart_on", "auto"),
            node_plan.get("checkpoint_rollback", False),
            node_plan.get("fewer"),
        )
        self.nodes = NodeReports(node_plan, self.restarts, started.s)
        self.hang = HangWatch(node_plan, started.s, previous.get("stacks"))
        self.slow_ranks = SlowRanks(node_plan.get("slow_ranks", False), started.s, previous.get("slow_ranks") or ())
        # How the job ended, and when.
        self.end, self.ended_s = Message(), 0.0
        # Seconds that ranks get to save before they end, and the newest checkpoint when they were asked to end.
        self.grace_s = saving.grace_s(node_plan)
        self._saved_before: str | None = None
        # The monitor before a reboot of the head has noted who saved.
        self.saving_known = False
        # Nodes with an open connection at the last decision.
        self._connected: Collection[str] = ()
        self.attempt = AttemptWatch(node_plan, started.s, self.restarts, self.nodes, self.hang, self.slow_ranks)
        # The hosts that may lead, one that only votes or "", and how often another one has taken over (take_over.py).
        self.candidates = [host for host, _ in node_plan.get("candidates", ())]
        self.witness = str(node_plan.get("witness") or "")
        self.term = int(previous.get("term") or 0)
        # A failure that is not answered yet, with all failures that were found with it.
        self._pending: tuple[Message, Sequence[Message]] | None = None
        self._orders: list[Order] = []
        # What nodes have been told at once.
        self._told = self._for_nodes(started.s)

    # ---- messages

    def receive(self, host: str, message: Message, now: Now) -> bool:
        """Take a message of a node, checked by messages.py; return whether it needs a decision at once."""
        self.nodes.last_contact[host] = now.s
        if "report" in message:
            return self.nodes.take(host, message["report"], now)
        if "stacks" in message:
            self.hang.receive(host, **message["stacks"])
        elif "samples" in message:
            if host in self.restarts.members:
                self.slow_ranks.add(host, **message["samples"])
        elif "goes_down" in message:
            self._goes_down(host, now)
        elif "stopped" in message and host != self.witness:
            self.finish("stopped", now, host=host)
        return bool(self.end or self._pending)

    def _goes_down(self, host: str, now: Now) -> None:
        """Answer a node that shuts down: with restarts all ranks save, and start again when it is back or replaced."""
        failure = {"kind": "rebooted", "host": host}
        self.nodes.leaving.add(host)
        if not self.budget:
            self.finish("failed", now, failure=failure)
        elif host in self.restarts.members and self.restarts.gathering_since is None:
            self.fail(failure)

    def message_for(self, host: str, now: Now) -> Message:
        """Return what a node has to do."""
        by = self.restarts.replaced.get(host)
        if self.end and not by:
            return {"end": self.end}
        if by:
            # It may come back, but another node has its place.
            replaced = {"kind": "replaced", "host": host, "by": by}
            return {"end": {"state": "failed", "finished": now.epoch_s, "failure": replaced}}
        place, moved = self.restarts.place(host), self.moved()
        return {
            "attempts": self.restarts.attempts(host),
            "go": self.restarts.go,
            "stacks": self.hang.order(host),
            **({"sample_stacks": True} if self.slow_ranks.sample_stacks else {}),
            **({"saving": True} if self.saving(now.s) else {}),
            **({} if place is None else {"place": place}),
            **({"moved": moved} if moved or self.plan.get("fewer") else {}),
            **({"absent": self.restarts.fewer.absent} if self.restarts.fewer.left_out else {}),
            **self.restarts.rollback.order(),
            **({"term": self.term} if self.candidates else {}),
            **self.nodes.daemons.order(host, self.restarts.members[0]),
            **({"copy": self.copy()} if host in self.candidates and host != self.host else {}),
        }

    def moved(self) -> dict[str, str]:
        """Return the addresses of spares by the addresses that they replace, and of another first node."""
        addresses, members = self.plan.get("addresses"), self.restarts.members
        if not addresses:
            return {}
        moves = {**self.restarts.replaced, self.restarts.fewer.hosts(members)[0]: members[0]}
        return {addresses[old]: addresses[new] for old, new in moves.items() if old != new}

    def copy(self) -> Message:
        """Return what a candidate has to know to lead the job from here on (succession.copy_shape)."""
        return deepcopy({"term": self.term, "head": self.host, "restarts": self.restarts.as_dict()})

    def finish(self, state: str, now: Now, **details: Any) -> None:
        """End the job. The first reason stays."""
        if not self.end:
            self._saved_before = self._newest()
            self.end, self.ended_s = {"state": state, "finished": now.epoch_s, **details}, now.s

    # ---- decisions

    def decide(self, now: Now, local: Local = _ALONE) -> list[Order]:
        """Return what has to be done, by what the nodes have reported."""
        if self.end:
            return [End(self.end)]
        self._connected = local.connected
        self._orders = []
        if saved := self.nodes.checkpoints():
            self.restarts.note_checkpoint(saved["newest"])
            self.restarts.rollback.note(saved)
        result = None if self._pending else self.attempt.check(now, local)
        if result and result.final:
            self.finish(result.state, now, **result.details)
        elif result:
            self.fail(result.failure, result.found)
        if self._pending and self.budget and not self.end:
            if not local.polled:
                return [PollCheckpoints()]
            self._restart_or_end(now, local)
        elif self._pending:
            failure, found = self._pending
            self._end_failed(now, failure, found)
        self._prepare_start(now, local)
        if self.attempt.time_up(now.s) and not self.hang.number:
            # Nothing runs that could take stacks.
            self.finish("timed_out", now, after_s=self.plan["timeout_s"])
        # A report may have changed it since the last decision.
        told, self._told = self._told, self._for_nodes(now.s)
        if self._told != told:
            self._orders.append(Inform())
        return [*self._orders, End(self.end)] if self.end else self._orders

    def _for_nodes(self, now_s: float) -> tuple[object, ...]:
        """Return what nodes have to know at once when it changes."""
        restarts = self.restarts
        begins = len(restarts.history), restarts.rollback.attempt, restarts.go, *restarts.fewer.absent
        return *begins, self.nodes.daemons.changes, self.hang.number, self.slow_ranks.sample_stacks, self.saving(now_s)

    def saving(self, now_s: float) -> bool:
        """Return whether, before a restart, ranks of some node may still save."""
        since = self.restarts.gathering_since
        if not self.grace_s or since is None or self.restarts.go or now_s - since > self.grace_s:
            return False
        return self.nodes.saving(now_s, self._connected)

    def others_save(self, now_s: float, connected: Collection[str]) -> bool:
        """Return whether, after the end, ranks of some node may still save."""
        return bool(self.grace_s) and now_s - self.ended_s <= self.grace_s and self.nodes.saving(now_s, connected)

    def _newest(self) -> str | None:
        return self.restarts.saved["name"] if self.restarts.saved else None

    def saved(self) -> Message | None:
        """Return who saved since the ranks were asked to end (saving.py)."""
        return saving.joined(self.plan.get("stop") or {}, self.nodes.asked(), self._saved_before, self._newest())

    def fail(self, failure: Message, found: Sequence[Message] = ()) -> None:
        """Have the next decision answer a failure; the first one stays."""
        self._pending = self._pending or (failure, found)

    def rank_failures(self) -> list[Message]:
        """Return the failures of ranks in the present attempt."""
        return self.nodes.failures(self.nodes.current()) if self.nodes.first("failures") else []

    def _restart_or_end(self, now: Now, local: Local) -> None:
        """Answer a failure: start again while restarts are left, else end the job."""
        (failure, found), back = self._pending or ({}, []), self.nodes.waiting(now.s, local.connected)
        known = now.s, now.s - self.started.s, self.nodes.metrics(), failure, now.epoch_s
        if cannot_go_on(self.restarts, failure) or not self.restarts.take(found or [failure], *known):
            self._end_failed(now, {**failure, **unanswered(self.restarts)}, found)
            return
        take_back(self.restarts, back)
        self._pending, self._saved_before, self.saving_known = None, self._newest(), False
        self.attempt.begin()
        self._replace(self.restarts.host_to_replace(failure), now, failures.failure_text(failure), local)

    def _end_failed(self, now: Now, failure: Message, found: Sequence[Message] = ()) -> None:
        self.finish("failed", now, failure=failure, **({"failures": list(found[:64])} if found else {}))

    # ---- restarts

    def _prepare_start(self, now: Now, local: Local) -> None:
        """Let all nodes start the next attempt once each is ready for it; replace those that are not by spares."""
        members = self.restarts.members
        # Also a spare that could not write down its place, so that it has none as yet.
        stuck = next(filter(None, (self.nodes.last.get(host, {}).get("cannot_write") for host in members)), None)
        if stuck:
            self._end_failed(now, stuck)
        if self.restarts.gathering_since is not None and not self.restarts.go:
            if not self.saving_known:
                self.restarts.note_saving(self.saved())
            self._replace_unfit(now, local)
            for host, reason in _suspects(self).items():
                self._replace(host, now, reason, local)
        staying, silent = _replaced(self, now.s, local)
        self._orders += [Disconnect(host) for host in silent]
        late = self.restarts.gather(members, self.nodes.of_members(), now.s, len(silent) < len(staying))
        if late:
            self._end_late(late, now)

    def _end_late(self, late: Sequence[str], now: Now) -> None:
        """Go on without nodes that are not back in time, or end the job."""
        if leave_out(self.restarts, {host: self.nodes.obstacle(host, now.s) for host in late}, now.s, now.epoch_s):
            return
        after_s = round(self.restarts.rejoin_s)
        host, kind, reason = self.nodes.in_the_way()
        if kind == "excluded" and host in late:
            self._end_excluded(host, reason, after_s, now)
        elif kind and host in late:
            self._end_failed(now, {"kind": "held", "host": host, "reason": reason, "after_s": after_s})
        else:
            self._end_failed(now, {"kind": "not_back", "host": late[0], "hosts": list(late), "after_s": after_s})

    def _end_excluded(self, host: str, reason: str, after_s: int | None, now: Now) -> None:
        self.restarts.exclude(host, reason, now.epoch_s)
        self._end_failed(now, {"kind": "excluded", "host": host, "reason": reason, "after_s": after_s})

    def _replace(self, lost: str, now: Now, reason: str, local: Local) -> None:
        """Have a spare take the place of a node, where there is one that still reports."""
        here = [host for host in (*local.connected, self.host) if self.nodes.reports_in_time(host, now.s)]
        if self.restarts.replace(lost, here, reason, now.epoch_s):
            self._orders.append(Replace(lost, self.restarts.replaced[lost]))

    def _replace_unfit(self, now: Now, local: Local) -> None:
        """Replace nodes that are lost, whose devices are not free, or that do not pass their health check.

        For a reason that stays the job goes on without the node where no spare is left, or ends at once. A scheduler
        starts a program whose host or pod has ended no second time: such a node is not waited for either, where the job
        may go on without it.
        """
        waited = now.s - (self.restarts.gathering_since or now.s) > HELD_S
        for host in list(self.restarts.members):
            report = self.nodes.last.get(host, {})
            excluded = report.get("excluded") or {}
            for_good = bool(excluded) and not excluded["temporary"]
            unfit = for_good or (waited and (excluded or report.get("held")))
            # The ranks of a node that shuts down save first.
            left = host not in local.connected
            down = host in self.nodes.leaving and left
            why = self.nodes.obstacle(host, now.s)
            lost = down or not self.nodes.reports_in_time(host, now.s)
            if unfit or lost:
                self._replace(host, now, why, local)
            once = self.plan.get("started_once") and host != self.host
            if lost and left and once and host in self.restarts.members:
                leave_out(self.restarts, {host: why}, now.s, now.epoch_s)
            lasts = for_good and host in self.restarts.members and not self.restarts.spares
            if lasts and not leave_out(self.restarts, {host: why}, now.s, now.epoch_s):
                self._end_excluded(host, excluded["reason"], None, now)


def _suspects(head: HeadState) -> dict[str, str]:
    """Return nodes to which spares are preferred, when all could start again: they passed, but lost a link or the time.

    Only where there are spares for all of these: a switch that was off is no fault of the nodes.
    """
    restarts, last = head.restarts, head.nodes.last
    if any(last.get(host, {}).get("ready_for") != restarts.attempts(host) for host in restarts.members):
        return {}
    suspects = head.nodes.suspects()
    return suspects if len(suspects) <= len(restarts.spares) else {}


def _replaced(head: HeadState, now: float, local: Local) -> tuple[list[str], list[str]]:
    """Return the replaced nodes that are still here to end their ranks, and those of them that are silent.

    A node that was frozen or cut off closes no connection; a restart must not wait until it is back.
    """
    staying = [host for host in head.restarts.replaced if host in local.connected or host == head.host]
    return staying, [host for host in staying if not head.nodes.reports_in_time(host, now)]


def _silence(head: HeadState, now_s: float) -> str:
    """Return in words that no progress comes while ranks run, "" if nothing is unusual."""
    waits = head.end or head.nodes.absent() or head.restarts.gathering_since is not None
    if waits or not any(report.get("ranks_running") for report in head.nodes.of_members().values()):
        return ""
    return head.hang.silence(now_s, restarts=len(head.restarts.history) < head.budget)


def _witness_lost(head: HeadState, now_s: float) -> Message | None:
    """Return the witness that no longer reports, and for how long; None while it does, or has time to begin."""
    silent_s = head.nodes.silent_for(head.witness, now_s)
    patience_s = head.nodes.silent_after_s if head.witness in head.nodes.last_contact else JOIN_S
    return {"host": head.witness, "silent_s": round(silent_s)} if head.witness and silent_s > patience_s else None


def cluster_state(head: HeadState, now: Now) -> Message:
    """Return the state of the job: all of cluster.json but the events."""
    nodes, restarts = head.nodes, head.restarts
    # Time after the end is no part of the job's.
    now_s = head.ended_s if head.end else now.s
    elapsed_s = now_s - head.started.s
    host, kind, reason = nodes.in_the_way()
    leading = nodes.leading()
    silent = nodes.silence(now_s)
    return {
        "job_id": head.plan["job_id"],
        "head": head.host,
        "term": head.term,
        "state": head.end.get("state") or ("starting" if nodes.absent() else "running"),
        "started": head.started.epoch_s,
        "elapsed_s": round(elapsed_s, 2),
        "metrics": nodes.metrics(),
        "loss_not_a_number": leading.get("loss_not_a_number"),
        "progress_rank": leading.get("progress_rank"),
        "checkpoints": restarts.rollback.shown(nodes.checkpoints(), bool(head.end)),
        "held": f"{host} {_WHY[kind]}: {reason}" if kind else failures.silence_line(silent) if silent else None,
        "goodput": restarts.goodput(elapsed_s),
        "left_s": None if head.end else goodput.left_s(leading.get("pace"), nodes.metrics().get("steps")),
        "slow_ranks": head.slow_ranks.named,
        "printing": head.hang.printing,
        "silence": _silence(head, now_s),
        "no_progress": None if head.end else head.hang.noted,
        "apart": head.attempt.apart,
        "stacks": head.hang.recorded,
        "saving": head.saved() if head.end else None,
        "world_size": restarts.fewer.world_size or head.plan["world_size"],
        "ranks_running": sum(report.get("ranks_running", 0) for report in nodes.of_members().values()),
        "nodes": {
            host: {
                "ranks_running": nodes.last.get(host, {}).get("ranks_running"),
                "silent_s": round(now_s - nodes.last_contact[host], 1) if host in nodes.last_contact else None,
            }
            for host in filter(None, (*restarts.members, *restarts.spares, *restarts.fewer.left_out, head.witness))
        },
        "witness_lost": _witness_lost(head, now_s),
        "restarts": restarts.as_dict(),
        "end": head.end or None,
    }
