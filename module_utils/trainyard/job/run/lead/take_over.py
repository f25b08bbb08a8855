# SPDX-License-Identifier: Apache-2.0
"""Lead a job in place of a head that was lost, and leave that to another one (succession.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....base.shapes import Message
from ..decide.head_state import HeadState
from ..decide.orders import Now
from ..decide.restarts import WHOLE
from .succession import SETTLE_S, Caller, is_majority, voters


def take_over(
    head: HeadState, copy: Message, callers: Mapping[str, Caller], silent_s: float, now: Now, rebooted: bool = False
) -> None:
    """Lead the job in place of the head whose `copy` of the state this is; it was silent for `silent_s`.

    That may have been this node: it has `rebooted`, or was cut off.
    """
    lost, nodes, restarts = copy["head"], head.nodes, head.restarts
    # Its copy is at least as new as what any caller has followed (succession.wins).
    head.term = copy["term"] + 1
    for host in _voters(head):
        # All others call at about this time, too.
        nodes.last_contact[host] = now.s - nodes.silent_after_s / (1 if host == lost else 2)
    for host, caller in callers.items():
        head.receive(host, {"report": caller.report}, now)
    ran = [caller.report["attempts"][WHOLE] for caller in callers.values()]
    restarts.take_over(max(ran, default=0), now.s + SETTLE_S)
    failure = {"kind": "no_majority" if lost == head.host else "silent", "host": lost, "after_s": round(silent_s)}
    come_back(head, copy, {"kind": "rebooted", "host": lost} if lost == head.host and rebooted else failure, now)


def come_back(head: HeadState, previous: Mapping[str, Any], failure: Message, now: Now) -> None:
    """Go on where the last head was lost by this failure: with the restart that it had begun, or with a new one.

    It had begun one that still holds if it went down with its node, or had no place in the job any more. `previous` is
    the last state of the job, as cluster.json has it.
    """
    lost, restarts = failure["host"], head.restarts
    holds = lost not in restarts.members or (restarts.history or [{}])[-1].get("failure") == _down(lost)
    if (previous.get("restarts") or {}).get("gathering") and holds:
        head.saving_known, restarts.gathering_since, restarts.go = True, now.s, False
    else:
        head.fail(failure)


def _voters(head: HeadState) -> set[str]:
    return voters({"members": head.restarts.members, "spares": head.restarts.spares}, head.witness)


def _down(host: str) -> Message:
    return {"kind": "rebooted", "host": host}


class Hold:
    """Whether a head still leads: cut off from most voters, suspended, or replaced, it leaves that to others."""

    def __init__(self, head: HeadState, now: float, heard: bool = False) -> None:
        """Take the head, and whether it has heard a majority of the voters before."""
        self._head, self._heard, self._looked_at = head, heard, now

    def lost(self, now: float) -> bool:
        """Return whether others have to lead from now on."""
        head, slept = self._head, now - self._looked_at
        self._looked_at = now
        if head.end or not head.candidates:
            return False
        of = _voters(head)
        there = [host for host in of if host == head.host or head.nodes.reports_in_time(host, now)]
        before, self._heard = self._heard, self._heard or is_majority(there, of)
        silent = not is_majority(there, of) or slept > head.nodes.silent_after_s
        return head.host in head.restarts.replaced or (before and silent)
