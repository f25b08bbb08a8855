# SPDX-License-Identifier: Apache-2.0
"""Decide whether attempts of a job fail because of its newest checkpoint, and which checkpoints are set aside.

A checkpoint is suspect if two attempts in a row began with it and ended before their first step by the program's own
failure, or if no loss after it was a number. With `job_checkpoint_rollback` it is set aside (renamed, never deleted),
and the next attempt goes on from the one before. This is a trial until an attempt makes a step. If the trial fails, or
the job ends before, all checkpoints get their names back. A checkpoint from which an attempt has made a step is never
suspect.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

Checkpoint = Mapping[str, Any]

# Attempts in a row that end before their first step, and lines of progress without a number as loss, that make a
# checkpoint suspect.
ENDED, LOSSES = 2, 3
# Upper bound for checkpoints of one trial.
MAX_ASIDE = 3
# How many checkpoints from which an attempt has made a step are kept.
_MAX_PROVEN = 64
# Signals by which a program dies of its own fault. A shell reports death by a signal as 128 and its number.
_OWN_SIGNALS = (signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV)
_BY_SIGNAL = 128
# Answers to a failure: start again whatever other rules say, the same without the checkpoint, end the job.
AGAIN, BACK, END = "again", "back", "end"


def own_failure(failure: Mapping[str, Any]) -> bool:
    """Return whether a rank failed by itself: not killed, not by a lost peer, a full disk or a lack of memory."""
    if failure.get("kind") != "exit" or not failure.get("ranks"):
        return False
    if failure.get("lost") or failure.get("full") or failure.get("oom_kills") or failure.get("result") == "oom-kill":
        return False
    number, code = failure.get("signal"), failure.get("exit_code") or 0
    number = number or (code - _BY_SIGNAL if code > _BY_SIGNAL else 0)
    return number in _OWN_SIGNALS if number else bool(code)


def _same(one: Checkpoint | None, other: Checkpoint | None) -> bool:
    """Return whether two records are of the same checkpoint, not of another one of the same name."""
    return one is not None and other is not None and (one["name"], one["time"]) == (other["name"], other["time"])


class Rollback:
    """The checkpoints with which attempts began, which of them are on trial, and which stay aside.

    cluster.json holds the attributes in _SAVED under their names, so that they survive a reboot of the head.
    """

    _SAVED = ("known", "began", "ended", "lost", "proven", "trial", "aside", "moving", "problem")

    def __init__(self, enabled: bool, previous: Mapping[str, Any] | None = None) -> None:
        """Take job_checkpoint_rollback; `previous` is as_dict() before a reboot."""
        self.enabled = enabled
        # Whether checkpoints were polled, and the newest one as the present attempt began.
        self.known = False
        self.began: Checkpoint | None = None
        # Attempts in a row from it that ended before their first step; leading lines of the present attempt whose loss
        # was not a number.
        self.ended = self.lost = 0
        self.proven: list[Checkpoint] = []
        # Checkpoints of the present trial, and the names of those that stay aside.
        self.trial: list[dict[str, Any]] = []
        self.aside: list[str] = []
        # The node has not set the last one aside as yet. Why it could not: then nothing more is set aside.
        self.moving, self.problem = False, ""
        previous = previous or {}
        vars(self).update(deepcopy({name: previous[name] for name in self._SAVED if name in previous}))
        # The checkpoints that are not the cause, so that the job ends, or "".
        self.not_the_cause = ""
        # The attempt for which the node of rank 0 sets checkpoints aside; None while ranks may still run.
        self.attempt: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the state for cluster.json."""
        return {name: getattr(self, name) for name in self._SAVED}

    def note(self, state: Mapping[str, Any]) -> None:
        """Take the state of the checkpoints; the first one is that at the begin of the job."""
        if not self.known:
            self.known, self.began = True, state.get("last")

    # ---- a running attempt

    def watch(self, pace: Mapping[str, Any] | None) -> None:
        """Take the pace of the present attempt (goodput.follow), None before its first step."""
        if not pace:
            return
        if pace.get("no_number") == pace["lines"]:
            self.lost = pace["lines"]
            return
        self.lost = self.ended = 0
        if self.began and not self._is_proven():
            self.proven = [*self.proven, {name: self.began[name] for name in ("name", "time")}][-_MAX_PROVEN:]
        self.aside += [each["name"] for each in self.trial]
        self.trial = []

    def _is_proven(self) -> bool:
        return any(_same(each, self.began) for each in self.proven)

    def bad_loss(self, host: str) -> dict[str, Any] | None:
        """Return the failure of an attempt whose losses are no numbers, where that is answered; else None."""
        if self.lost < LOSSES or not (self._may_go_back(True) or self._on_trial()):
            return None
        return {"kind": "not_a_number", "host": host, "checkpoint": self.began["name"] if self.began else ""}

    def _on_trial(self) -> bool:
        return self.enabled and bool(self.trial) and not self.problem

    def _may_go_back(self, lost: bool) -> bool:
        """Return whether the checkpoint of the present attempt may be set aside.

        After a checkpoint that was complete, a trial goes on only where losses are no numbers: a program may have saved
        several of these.
        """
        if not self.enabled or self.problem or not self.began or not self.began.get("before") or self._is_proven():
            return False
        return not self.trial or (len(self.trial) < MAX_ASIDE and (lost or not self.trial[-1]["complete"]))

    # ---- a failure

    def answer(self, failure: Mapping[str, Any], early: bool, left: bool) -> str:
        """Return how a failure is answered: AGAIN, BACK, END, or "" if other rules decide.

        `early` tells whether the attempt ended before its first step, `left` whether a restart is left.
        """
        own = own_failure(failure)
        lost = bool(self.lost) and (own or failure.get("kind") == "not_a_number")
        if not lost and not (own and early):
            self.ended = 0
            return ""
        self.ended += 0 if lost else 1
        if not left or not (self._may_go_back(lost) or self._on_trial()):
            return ""
        if not lost and self.ended < ENDED:
            return AGAIN
        if not self._may_go_back(lost):
            self.not_the_cause = ", ".join(each["name"] for each in self.trial)
            return END
        # Later checkpoints of an attempt without numbers are no better.
        self.trial.append({**(self.began or {}), "later": lost, "attempts": self.ended})
        self.moving, self.ended = True, 0
        return BACK

    def entry(self) -> dict[str, str]:
        """Return what the restart history has of the last checkpoint of the trial, and why that is set aside."""
        last = self.trial[-1]
        ended = f"{last['attempts']} attempts ended before their first step"
        return {"checkpoint": last["name"], "set_aside": "its first loss was not a number" if last["later"] else ended}

    # ---- the next attempt

    def order(self) -> dict[str, Any]:
        """Return what the node of rank 0 has to do before the next attempt; empty where nothing."""
        if self.attempt is None:
            return {}
        fields = ("name", "time", "size", "before", "later")
        trial = [{name: each[name] for name in fields} for each in self.trial]
        return {"aside": {"attempt": self.attempt, "checkpoints": trial}}

    def prepare(
        self, attempt: int, ended: bool, reports: Mapping[str, Mapping[str, Any]], entry: dict[str, Any]
    ) -> bool:
        """Have checkpoints set aside once all ranks have `ended`; return whether the attempt may begin.

        `reports` are those of all nodes, `entry` is that of the restart in the history.
        """
        state: Mapping[str, Any] = next(filter(None, (each.get("checkpoints") for each in reports.values())), {})
        if self.enabled and self.known:
            self.attempt = attempt if ended else None
            done = state.get("aside") or {}
            if not ended or done.get("attempt") != attempt:
                return False
            if done["problem"] and self.moving:
                self.problem = entry["not_set_aside"] = done["problem"]
                self.trial.pop()
            self.moving = False
        if not _same(state.get("last"), self.began):
            self.ended = 0
        self.began, self.lost, self.attempt = state.get("last"), 0, None
        return True

    # ---- the report

    def shown(self, state: Mapping[str, Any] | None, ended: bool) -> dict[str, Any] | None:
        """Return the state of the checkpoints for the report: what nodes sent of them, and what was set aside."""
        if state is None:
            return None
        trial = [each["name"] for each in self.trial]
        problem = (state.get("aside") or {}).get("problem")
        more = {
            "aside": self.aside if ended else [*self.aside, *trial],
            "restored": trial if ended else [],
            "not_restored": problem if ended and trial else "",
            "suspect": self._suspect(),
        }
        sent = {name: value for name, value in state.items() if name not in ("last", "aside")}
        return {**sent, **{name: value for name, value in more.items() if value}}

    def _suspect(self) -> dict[str, Any] | None:
        """Return the checkpoint that job_checkpoint_rollback would set aside; None where that is on, or would not."""
        if self.enabled or not self.began or not self.began.get("before") or self._is_proven():
            return None
        if not self.lost and self.ended < ENDED:
            return None
        attempts = 0 if self.lost else self.ended
        return {"name": self.began["name"], "before": self.began["before"], "attempts": attempts}
