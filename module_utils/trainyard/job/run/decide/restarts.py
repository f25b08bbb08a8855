# SPDX-License-Identifier: Apache-2.0
"""Keep the restart history of a job, and apply its policy: which processes start again after a failure, and how often.

A process that can recover (MindSpore's scheduler) starts again alone. After any other failure the whole job does: all
processes on all nodes end first, so that the new rendezvous meets no old rank. Both count against `job_max_restarts`.

A short attempt without a new step or checkpoint is fruitless: the next one waits, longer each time, and after three in
a row the job has failed. A long attempt never counts: scripts that count steps within each epoch, or print none, may
have come further.

Attempts are counted for each host: {"": of the whole job, "scheduler": of that process alone}. Times are seconds on
the head's monotonic clock unless they say otherwise.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any

from ..logs.failure_kinds import failure_kind
from ..logs.failures import Failure, failure_text
from ..logs.progress import clock, number
from ..measure import goodput
from ..measure.checkpoints import SUFFIX, further
from . import remaining_nodes, rollback

Attempts = dict[str, int]

# The name of the whole job among the names of its processes.
WHOLE = ""
# Fruitless attempts in a row that end a job, the longest time of one, and the wait for each after the first.
MAX_FRUITLESS, SHORT_S, PAUSE_S = 3, 600.0, 5.0


def _reached(restart: Mapping[str, Any]) -> str:
    """Return how far the job had come at a restart: its step, or its epoch where it prints no steps."""
    names = (name for name in ("step", "epoch") if restart.get(name) is not None)
    return next((f"{name} {number(restart[name])}" for name in names), "")


def restart_text(restart: Mapping[str, Any]) -> str:
    """Return one entry of the history as a line."""
    # Slurm does not record when it requeued a job.
    when = f"{clock(restart['elapsed_s'])}   " if restart["elapsed_s"] is not None else ""
    reached, wait_s = _reached(restart), restart.get("wait_s")
    later = f" in {number(wait_s)} s" if wait_s else ""
    after = "no further than" if restart.get("fruitless") else "after"
    place = f" ({after} {reached})" if reached else ""
    saved = f"; newest checkpoint at the restart: {restart['checkpoint']}" if restart.get("checkpoint") else ""
    if restart.get("not_set_aside"):
        saved += f", which could not be set aside: {restart['not_set_aside']}"
    elif restart.get("set_aside"):
        saved = f"; checkpoint {restart['checkpoint']} is set aside ({SUFFIX}): {restart['set_aside']}"
    instead = f"; {restart['spare']} takes the place of {restart['replaced']}" if restart.get("spare") else ""
    instead += remaining_nodes.history_text(restart)
    # A failure that replaced a node stands at the beginning.
    why = restart.get("why") or ""
    because = f" ({why})" if why and not restart["reason"].startswith(why) else ""
    return f"{when}{restart['reason']}, so {restart['restarted']} starts again{later}{place}{saved}{instead}{because}"


def went_on_text(restart: Mapping[str, Any]) -> str:
    """Return where the job went on after a restart, as the program has printed it; "" before that.

    The newest checkpoint at the restart need not be the one that the program has loaded.
    """
    step, line = restart.get("first_step"), restart.get("resumed")
    first = "" if step is None else f"its first step was {number(step)}"
    if line:
        return f"the program then printed: {line}" + (f"; {first}" if first else "")
    named = ", and no line before it named a checkpoint" if restart.get("checkpoint") else ""
    return f"the program went on: {first}{named}" if first else ""


def watched_texts(restart: Mapping[str, Any]) -> list[str]:
    """Return the lines that a watch shows of a restart, in the order in which they become known."""
    out = remaining_nodes.left_out_text(restart)
    first = restart_text({**restart, "left_out": (), "why": ""} if out else restart)
    return [text for text in (first, out, went_on_text(restart)) if text]


def _detected(failure: Failure, time_s: float | None) -> float | None:
    """Return how long ago a failure was: by the clock of its node, or for how long its node was silent."""
    if failure.get("after_s") is not None:
        return float(failure["after_s"])
    return None if time_s is None or not failure.get("time") else round(max(0.0, time_s - float(failure["time"])), 1)


def gave_up(summary: Mapping[str, Any]) -> list[str]:
    """Return why a job was not started again although restarts were left."""
    failure = summary.get("failure") or {}
    if failure.get("rolled_back"):
        alike = f"attempts failed alike without checkpoint {failure['rolled_back']}, which is not the cause"
        return [f"not started again: {alike}"]
    cause = failure.get("not_restarted")
    if cause:
        always = "(job_restart_on: always starts again anyway)"
        return [f"not started again: {cause}, which a restart does not change {always}"]
    fruitless = failure.get("fruitless") or 0
    if fruitless < MAX_FRUITLESS or len(summary["restarts"]) >= summary["max_restarts"]:
        return []
    reached = _reached(summary["restarts"][-1])
    further = f"came further than {reached}" if reached else "printed a step or an epoch"
    return [f"not started again: none of the last {fruitless} attempts {further}; the cause does not go away"]


def _last_step(pace: goodput.Pace | None, metrics: Mapping[str, float | None], attempt_s: float) -> str | None:
    """Return the last step of an attempt: "" if it ended before the first, None if that is unknown.

    It is unknown where steps start again with each epoch. `metrics` are the last of all attempts.
    """
    if pace:
        return f"{pace['last_epoch']} {pace['last']}" if pace["rising"] else None
    if metrics.get("epoch") is not None and metrics.get("step") is None:
        return f"{metrics['epoch']}"
    return None if attempt_s > SHORT_S else ""


def _for_good(
    first: Failure, failures: Sequence[Failure], step: str | None, last: Mapping[str, Any], spares: int
) -> str:
    """Return why a restart cannot change this failure, by the rules and the `last` restart of the whole job, or ""."""
    # A rank seldom fails, and these expressions take time to compile.
    from . import restart_rules

    earlier, earlier_step = last.get("failure"), last.get("ended_at")
    found = restart_rules.decide(first, failures, step=step, earlier=earlier, earlier_step=earlier_step, spares=spares)
    return found.reason if found.stop else ""


def _whole_entry(furthest: Sequence[float] | None, fruitless: int, wait_s: float, saved: Any) -> dict[str, Any]:
    """Return the entry of the history for a restart of the whole job; `saved` is the newest checkpoint."""
    return {
        "restarted": "the whole job",
        "step": furthest[1] if furthest and len(furthest) > 1 else None,
        "epoch": furthest[0] if furthest else None,
        "fruitless": fruitless,
        "wait_s": wait_s,
        "checkpoint": saved["name"] if saved else None,
        "restart_s": None,
        "step_s": None,
    }


class Restarts:
    """The head's restart history, the members of the job and its spares.

    cluster.json holds the attributes in _SAVED under their names, so that they survive a reboot of the head.
    """

    _SAVED = (
        *("history", "whole", "alone", "stepped", "furthest", "fruitless", "began_s", "polled", "saved", "saved_new"),
        *("members", "spares", "replaced", "excluded"),
    )

    def __init__(
        self,
        budget: int,
        rejoin_s: float,
        previous: Mapping[str, Any] | None = None,
        members: Iterable[str] = (),
        spares: Iterable[str] = (),
        restart_on: str = "auto",
        rolls_back: bool = False,
        fewer: Mapping[str, Any] | None = None,
    ) -> None:
        """Take the budget and how long a lost node may be away; `previous` is as_dict() before a reboot.

        `members` are the hosts in the order of their node ranks. `restart_on` is the job's job_restart_on,
        `rolls_back` its job_checkpoint_rollback, `fewer` that of the node plan.
        """
        self.budget, self.rejoin_s, self._restart_on = budget, rejoin_s, restart_on
        # Why the last failure was not answered by a restart although some were left, or "".
        self.not_restarted = ""
        self.history: list[dict[str, Any]] = []
        # Attempts of the whole job, and of single processes by host; whether any has made a step.
        self.whole, self.stepped = 0, False
        self.alone: dict[str, Attempts] = {}
        # The furthest [epoch, step] of all attempts, [epoch] if they print no steps; fruitless attempts in a row; when
        # the present one began, on the job's clock.
        self.furthest: list[float] | None = None
        self.fruitless, self.began_s = 0, 0.0
        # Whether checkpoints were polled, the newest one, and whether the present attempt has made a further one.
        self.polled, self.saved_new = False, False
        self.saved: Mapping[str, Any] | None = None
        # Hosts by place (the node rank of the plan), spares, and the spare of each replaced host.
        self.members, self.spares = list(members), list(spares)
        self.replaced: dict[str, str] = {}
        # Excluded hosts, with the reason and since when: the next launch leaves them out.
        self.excluded: dict[str, dict[str, Any]] = {}
        previous = previous or {}
        self.rollback = rollback.Rollback(rolls_back, previous.get("rollback"))
        # The places that are empty.
        self.fewer = remaining_nodes.Fewer(fewer, previous.get("left_out"))
        vars(self).update(deepcopy({name: previous[name] for name in self._SAVED if name in previous}))
        # The pace of each attempt of the whole job; None where it printed no step. Unknown after a reboot of the head,
        # whose clock has begun anew.
        self._paces: list[goodput.Pace | None] | None = None if previous else [None]
        self._running_at: float | None = None
        # Since when all nodes end the last attempt, None otherwise; whether they may start, and from when on.
        self.gathering_since: float | None = None
        # When others were left out: from then on the present members have `rejoin_s`.
        self.waits_since = 0.0
        self.go, self._not_before, self._settled_at = True, 0.0, 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return the history for cluster.json."""
        return {
            "budget": self.budget,
            **{name: getattr(self, name) for name in self._SAVED},
            "history": goodput.with_costs(self.history, self._paces or ()),
            "gathering": self.gathering_since is not None,
            "rollback": self.rollback.as_dict(),
            **self.fewer.as_dict(),
        }

    def take_over(self, whole: int, settled_at: float) -> None:
        """Continue what an earlier head began; nodes run attempt `whole`, and none starts before `settled_at`."""
        self.whole, self._settled_at = max(self.whole, whole), settled_at

    def note_checkpoint(self, checkpoint: Mapping[str, Any] | None) -> None:
        """Take the newest complete checkpoint; the one of the first poll is older than this job."""
        if self.rollback.moving:
            return
        if self.polled and further(checkpoint, self.saved):
            self.saved_new = True
        if not self.polled or further(checkpoint, self.saved):
            self.polled, self.saved = True, checkpoint

    def note_saving(self, saving: Mapping[str, Any] | None) -> None:
        """Take how the ranks of the attempt that ends have left (saving.py), and what they saved."""
        restart = self._whole_restarts()[-1]
        if saving:
            restart["saving"] = saving
        if saving and "set_aside" not in restart:
            restart["checkpoint"] = saving["after"]

    def keep_pace(self, pace: goodput.Pace | None, now: float, resumed: str = "") -> None:
        """Take the pace of the present attempt (goodput.follow), None before its first step.

        `resumed` is the line in which rank 0 named the checkpoint that it loads, or "".
        """
        for restart in self._whole_restarts()[-1:]:
            restart["resumed"] = restart.get("resumed") or resumed
            if pace and restart.get("first_step") is None:
                restart["first_step"] = pace["first"]
        self.rollback.watch(pace)
        self.stepped = self.stepped or pace is not None
        if self._paces is None:
            return
        if pace and not self._paces[-1] and self._running_at is not None:
            self._whole_restarts()[-1]["step_s"] = round(now - self._running_at, 1)
        self._paces[-1] = pace or self._paces[-1]

    def goodput(self, elapsed_s: float) -> dict[str, Any] | None:
        """Return the goodput of the job so far."""
        return goodput.goodput(self._paces or (), elapsed_s)

    def _whole_restarts(self) -> list[dict[str, Any]]:
        return [entry for entry in self.history if "step" in entry]

    def place(self, host: str) -> int | None:
        """Return the node rank that a spare has taken; None for any other node."""
        taken = host in self.replaced.values() and host in self.members
        return self.fewer.hosts(self.members).index(host) if taken else None

    def exclude(self, host: str, reason: str, time_s: float) -> None:
        """Exclude a host, with the reason, at `time_s` since the epoch."""
        self.excluded[host] = {"reason": reason, "since": time_s}

    def host_to_replace(self, failure: Failure) -> str:
        """Return the host that a spare replaces after a failure, "" for none: a rank has to fail twice in a row.

        The restart that answers the failure is the last one of the history.
        """
        host = str(failure.get("host") or "")
        if failure_kind(failure).replaceable:
            return host
        last = self.history[-2]["failure"] if len(self.history) > 1 else {}
        return host if last.get("kind") == failure.get("kind") == "exit" and last.get("host") == host else ""

    def replace(self, lost: str, here: Container[str], reason: str, time_s: float) -> bool:
        """Have the first spare of the plan that is `here` take the place of a node; return whether one did."""
        if lost not in self.members:
            return False
        spare = next((host for host in self.spares if host in here), None)
        if spare is None:
            return False
        self.spares.remove(spare)
        self.members[self.members.index(lost)] = spare
        self.replaced[lost] = spare
        self.history[-1].update(replaced=lost, spare=spare, why=reason)
        self.exclude(lost, reason, time_s)
        return True

    def attempts(self, host: str) -> Attempts:
        """Return the attempts that a host should run."""
        return {WHOLE: self.whole, **self.alone.get(host, {})}

    def take(
        self,
        failures: Sequence[Failure],
        now: float,
        elapsed_s: float,
        metrics: Mapping[str, float | None] | None = None,
        first: Failure | None = None,
        time_s: float | None = None,
    ) -> bool:
        """Answer failures that were found together with a restart; return whether one is left and can help.

        `metrics` are the last that the job has printed, `first` is the failure to blame, `time_s` is since the epoch.
        """
        first = first or failures[0]
        alone = [failure for failure in failures if failure.get("recover_after_s") is not None]
        # A new checkpoint is an advance, however many steps that was.
        known = self._paces is not None and not self.saved_new
        step = _last_step((self._paces or [None])[-1], metrics or {}, elapsed_s - self.began_s) if known else None
        if len(alone) < len(failures):
            self._note_advance(metrics or {}, elapsed_s)
        left = len(self.history) < self.budget
        # A program that has printed steps before prints them, however long it takes to begin.
        early = step == "" or (known and not (self._paces or [None])[-1] and (metrics or {}).get("step") is not None)
        answer = self.rollback.answer(first, early, left) if len(alone) < len(failures) else ""
        self.fruitless = 0 if answer == rollback.BACK else self.fruitless
        if not left or answer == rollback.END or (self.fruitless >= MAX_FRUITLESS and not answer):
            return False
        always = answer or self._restart_on == "always" or first.get("kind") == "folder_gone"
        last = self._whole_restarts()[-1] if self._whole_restarts() else {}
        self.not_restarted = "" if always else _for_good(first, failures, step, last, len(self.spares))
        if self.not_restarted:
            return False
        entry = {"elapsed_s": round(elapsed_s, 1), "reason": failure_text(first), "failure": dict(first)}
        if len(alone) == len(failures):
            for failure in failures:
                names = self.alone.setdefault(str(failure["host"]), {})
                names[failure["process"]] = names.get(failure["process"], 0) + 1
            entry["restarted"] = ", ".join(str(failure["process"]) for failure in failures)
        else:
            entry.update(self._restart_whole(now, elapsed_s), detect_s=_detected(first, time_s), ended_at=step)
        if answer == rollback.BACK:
            entry.update(self.rollback.entry())
            # The next poll has the one before it, as the first poll of the job had.
            self.polled, self.saved = False, None
        self.history.append(entry)
        return True

    def _restart_whole(self, now: float, elapsed_s: float) -> dict[str, Any]:
        """Begin to gather the nodes for another attempt; return what the history has of it."""
        wait_s = PAUSE_S * max(0, self.fruitless - 1)
        self.whole += 1
        self.gathering_since, self.go, self._not_before = now, False, now + wait_s
        self.began_s, self._running_at = elapsed_s + wait_s, None
        if self._paces is not None:
            self._paces.append(None)
        return _whole_entry(self.furthest, self.fruitless, wait_s, self.saved)

    def _note_advance(self, metrics: Mapping[str, float | None], elapsed_s: float) -> None:
        """Note whether the attempt that ends came further than all before it."""
        epoch, step = metrics.get("epoch"), metrics.get("step")
        reached = [epoch or 0.0] if step is None else [epoch or 0.0, step]
        if (epoch, step) != (None, None) and (self.furthest is None or reached > self.furthest):
            self.furthest, self.fruitless = reached, 0
        elif self.saved_new or elapsed_s - self.began_s > SHORT_S:
            self.fruitless = 0
        else:
            self.fruitless += 1
        self.saved_new = False

    def gather(
        self, hosts: Iterable[str], reports: Mapping[str, Mapping[str, Any]], now: float, leaving: bool = False
    ) -> list[str]:
        """Let all nodes start once each has ended the last attempt; return the nodes that are not back in time.

        None starts while a replaced node is still `leaving`.
        """
        if self.gathering_since is None:
            return []
        requested = {host: self.attempts(host) for host in hosts}
        behind = [host for host, names in requested.items() if reports.get(host, {}).get("attempts") != names]
        if not behind:
            restart = self._whole_restarts()[-1]
            restart["restart_s"] = round(now - self.gathering_since, 1)
            if self._paces and self._paces[-1]:
                # Its first step arrived before the last node reported that its ranks run.
                restart["step_s"] = 0.0
            self.gathering_since, self._running_at = None, now
        elif not self.go:
            unready = [host for host in behind if reports.get(host, {}).get("ready_for") != requested[host]]
            ended = not unready and not leaving
            ready = self.rollback.prepare(self.whole, ended, reports, self.history[-1])
            self.go = ended and ready and now >= max(self._not_before, self._settled_at)
            if now - max(self.waits_since, self.gathering_since) > self.rejoin_s and (unready or not ready):
                return unready or self.members[:1]
        return []


def unanswered(restarts: Restarts) -> dict[str, Any]:
    """Return why the last failure was not answered by a restart, for the record of that failure."""
    why = {"not_restarted": restarts.not_restarted, "rolled_back": restarts.rollback.not_the_cause}
    return {"fruitless": restarts.fruitless, **{name: text for name, text in why.items() if text}}


def cannot_go_on(restarts: Restarts, failure: Failure) -> bool:
    """Return whether a node without the job's folder is needed: no spare is left, and the job needs all nodes."""
    may_leave_out = restarts.fewer.may_leave_out
    needed = not restarts.spares and not may_leave_out([str(failure.get("host"))], restarts.members)
    return failure.get("kind") == "folder_gone" and needed


def leave_out(restarts: Restarts, reasons: Mapping[str, str], now_s: float, time_s: float) -> bool:
    """Go on without members, each for a reason, where enough are left; return whether that is so.

    `time_s` is since the epoch. The restart that waits for them is the last one of the history.
    """
    if not restarts.fewer.may_leave_out(reasons, restarts.members):
        return False
    restarts.fewer.leave_out(reasons, restarts.members)
    for host, reason in reasons.items():
        restarts.exclude(host, reason, time_s)
    entry = restarts.history[-1]
    entry.update(restarts.fewer.size(restarts.members), why=", ".join(dict.fromkeys(reasons.values())))
    entry["left_out"] = [*entry.get("left_out", ()), *reasons]
    # The others may have waited for these to write or check something.
    restarts.waits_since = now_s
    return True


def take_back(restarts: Restarts, hosts: Sequence[str]) -> None:
    """Have hosts that were left out take part in the restart that has just begun."""
    if hosts:
        restarts.fewer.take_back(hosts, restarts.members)
        restarts.excluded = {host: why for host, why in restarts.excluded.items() if host not in hosts}
        restarts.history[-1].update(restarts.fewer.size(restarts.members), back=list(hosts))
