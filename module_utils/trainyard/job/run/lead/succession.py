# SPDX-License-Identifier: Apache-2.0
"""Choose who leads a job after its head was lost, so that never two parts of the job train. Times are seconds.

Candidates are a few hosts in a fixed order, the planned head first. A node whose head is silent ends its ranks, calls
the candidates in turn, and obeys only the one that it has called. A call is a vote, as a node has one connection at a
time. In its own turn a candidate stands: it leads once a majority of the voters has called it, itself included. Voters
are the members of the job, its spares, and its witness, a host that votes and never stands (job_witness). The
candidate's copy of the job's state must not be older than what any of them has followed: each head has a higher term
than the one before.

A head that has not heard a majority of the voters for `silent_after_s` ends its own ranks, and calls like any other
node. A new head starts nothing before the ranks of the old one have ended in this way.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from ....base.shapes import (
    DURATION,
    MAYBE_DURATION,
    MAYBE_INT,
    MAYBE_NUMBER,
    MAYBE_TEXT,
    NOTHING,
    TIME,
    Each,
    Exact,
    Few,
    Is,
    Shape,
    Text,
    Whole,
)
from ..decide.rollback import MAX_ASIDE
from ..logs.failure_kinds import FAILURE
from ..measure.saving import SAVING

# How long a node tries to reach a candidate, how long it waits there for one that has not lost the head as yet, and how
# long a candidate waits for a first call.
CALL_S, WAIT_S = 3.0, 4.0
# How long a candidate that was called waits for a majority, and its callers with it: at least and at most. It is drawn,
# as parts of a job that all take the same time would miss each other for good once their network is whole.
STAND_S = 10.0, 30.0
# How long a new head starts nothing, as a head that is cut off may take that time to end its ranks.
SETTLE_S = 5.0
MAX_TERM = 1 << 31
# Upper bound for the text of a failure or a reason, in characters.
_MAX_TEXT = 1 << 16


class Caller(NamedTuple):
    """A node that has called a candidate: its last report, the highest term that it has followed, and when."""

    report: Mapping[str, Any]
    term: int
    at: float


class Search:
    """The turn of a node that has no head: it calls the candidates in their order, again and again."""

    def __init__(self, order: Iterable[str]) -> None:
        """Take the candidates."""
        self._order = list(order)
        self._at = 0

    def begin(self) -> None:
        """Begin anew: so nodes that lost the head one after another meet at the same candidate."""
        self._at = 0

    @property
    def target(self) -> str:
        """Return the candidate whose turn it is."""
        return self._order[self._at]

    def go_on(self) -> None:
        """Leave it to the next one."""
        self._at = (self._at + 1) % len(self._order)


def voters(restarts: Mapping[str, Any], witness: str = "") -> set[str]:
    """Return the hosts that vote, by the restart history (Restarts.as_dict): nobody who was replaced."""
    return {*restarts["members"], *restarts["spares"], *filter(None, [witness])}


def is_majority(some: Collection[str], of: Collection[str]) -> bool:
    """Return whether some hosts are more than half `of` those that vote."""
    return 2 * len({*some}.intersection(of)) > len(of)


def wins(
    host: str,
    copy: Mapping[str, Any],
    callers: Mapping[str, Caller],
    now: float,
    silent_after_s: float,
    witness: str = "",
) -> bool:
    """Return whether a candidate without a head leads from now on, by its copy of the state and by who has called."""
    here = {name: caller for name, caller in callers.items() if now - caller.at < silent_after_s / 2}
    newest = max((caller.term for caller in here.values()), default=0)
    return copy["term"] >= newest and is_majority({host, *here}, voters(copy["restarts"], witness))


def copy_shape(hosts: Collection[str], budget: int) -> Shape:
    """Return the shape of the copy of the state that a head sends to candidates, in a job of these hosts."""
    host, count = Is(hosts), Whole(budget)
    text = Text(_MAX_TEXT)
    checkpoint: Shape = {"name": text, "time": TIME, "size": int}
    restart = {
        **dict.fromkeys(("reason", "restarted"), text),
        **dict.fromkeys(("?replaced", "?spare"), (host, NOTHING, Is(("",)))),
        **dict.fromkeys(("elapsed_s", "?wait_s", "?restart_s", "?step_s"), MAYBE_DURATION),
        **dict.fromkeys(("?step", "?epoch", "?first_step"), MAYBE_NUMBER),
        "failure": FAILURE,
        **{name: Few(host, len(hosts)) for name in ("?left_out", "?back")},
        **dict.fromkeys(("?world_size", "?nodes", "?fruitless"), MAYBE_INT),
        "?checkpoint": MAYBE_TEXT,
        "?saving": (SAVING, NOTHING),
    }
    restarts = {
        "history": Few(restart, budget),
        "whole": count,
        "alone": Each(Each(count, text), host),
        "stepped": bool,
        "furthest": (Few(float, 2), NOTHING),
        "fruitless": Whole(MAX_TERM),
        "began_s": DURATION,
        "polled": bool,
        "saved_new": bool,
        "saved": (checkpoint, NOTHING),
        "members": Few(host, len(hosts)),
        "spares": Few(host, len(hosts)),
        "replaced": Each(host, host),
        "?left_out": Each(Whole(len(hosts)), host),
        "excluded": Each({"reason": text, "since": TIME}, host),
        "gathering": bool,
        "rollback": {
            **dict.fromkeys(("known", "moving"), bool),
            **dict.fromkeys(("ended", "lost"), int),
            "began": (Each(object), NOTHING),
            "proven": [{"name": text, "time": TIME}],
            "trial": Few({**checkpoint, "before": text}, MAX_ASIDE),
            "aside": [text],
            "problem": text,
        },
    }
    return Exact({"term": Whole(MAX_TERM), "head": host, "restarts": restarts})


def witness_line(lost: Mapping[str, Any] | None) -> str:
    """Return the text for the progress line while the witness is lost (witness_lost of cluster.json)."""
    return f"no report from the witness {lost['host']} for {lost['silent_s']:.0f} s" if lost else ""


def witness_texts(lost: Mapping[str, Any] | None) -> list[str]:
    """Return what the report says of a lost witness."""
    if not lost:
        return []
    risk = "without it, one more lost host may cost the job its majority"
    return [f"{witness_line(lost)}: {risk}; check {lost['host']}, and its connection to the nodes"]
