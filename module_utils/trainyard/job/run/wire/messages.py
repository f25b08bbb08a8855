# SPDX-License-Identifier: Apache-2.0
"""Declare and check the messages between the monitors of a job: their fields and bounds.

A sender that knows the job's token is not trusted: every rank can read the token, and a node may be broken. A message
that does not fit ends its connection and changes nothing. An empty message means that nothing is new.

    node to head    {} | {"report": {...}} | {"stopped": true, "goes_down": true}
                    | {"stacks": {"number": 1, "ranks": [...]}} | {"samples": {"ranks": [...], "node": [...]}}
    head to node    {} | {"attempts": {...}, "go": true, "stacks": 0, "sample_stacks": true, "place": 1, "moved": {...},
                       "aside": {"attempt": 2, "checkpoints": [...]}, "saving": true, "absent": [2], "term": 1,
                       "copy": {...}, "start": [...], "asked": {...}}
                    | {"end": {...}} | {"resigns": true} | {"stands": true}

`stacks` is the number of an order to take them, 0 for none; the answer repeats it. A node that shuts down adds
`goes_down`; without it, somebody stopped the job. `samples` counts samples of ranks and names what slows the node; with
`sample_stacks` these are samples of stacks, too (slow_ranks.py). `moved` maps replaced addresses to those of spares
(moved_addresses.py), `absent` are the places that nobody has (remaining_nodes.py). `aside` has the node of rank 0 set
checkpoints aside before that attempt (rollback.py). Where the head can be replaced (succession.py), reports and orders
have its `term`, a candidate gets a `copy` of the job's state, a head that is about to leave `resigns`, and a candidate
that waits for a majority `stands`. For mpirun's daemons (daemon_requests.py) reports have `asks` and `daemons`, orders
`start` and `asked`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import Any

from ....base.shapes import (
    DURATION,
    MAYBE_DURATION,
    MAYBE_INT,
    MAYBE_TIME,
    NOTHING,
    TIME,
    All,
    ByKind,
    Each,
    Exact,
    Few,
    Is,
    Message,
    Shape,
    Text,
    Whole,
    finite,
    misfit,
)
from ..decide import daemon_requests
from ..decide.rollback import MAX_ASIDE
from ..lead.succession import MAX_TERM, copy_shape
from ..logs.failure_kinds import FAILURE, KINDS, KINDS_OF_NODES, STATES
from ..logs.hang import PROGRESS
from ..logs.progress import MAX_METRICS, MAX_NAME
from ..logs.stacks import MAX_RANKS, rank_shape
from ..measure.saving import asked_shape
from ..measure.slow_ranks import report_shape
from ..measure.worlds import WORLDS

# Upper bound for quoted lines of logs, names of hosts and the like, in characters.
MAX_TEXT = 2000
MAX_FAILURES = 4096
# Upper bound for node ranks.
MAX_PLACES = 1_000_000
# Upper bound for spares.
MAX_MOVED = 1000
# Upper bound for exit codes, process ids and counts.
_LARGE = 1 << 32
# Upper bound for steps: arithmetic stays exact below it.
_MAX_COUNTED = 1e15
# An IP address, which is written into files and environments.
_ADDRESS = re.compile(r"[0-9A-Fa-f.:]{2,45}(?:%[\w.-]{1,15})?", re.ASCII)
_PROCESS = re.compile(r"agent|mpirun|scheduler|rank(?P<rank>0|[1-9]\d{0,8})")


class BadMessage(ValueError):
    """A message that does not fit; the text says why."""


def read(text: bytes) -> Message:
    """Read a message. Raises BadMessage unless it is one JSON object, strictly, with numbers of a usual length."""
    try:
        found = json.loads(text, parse_int=_short_int, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise BadMessage(f"not JSON: {str(error)[:80]}") from None
    if not isinstance(found, dict):
        raise BadMessage("not a message")
    return found


def write(message: Message) -> bytes:
    """Return a message as JSON."""
    return json.dumps(message, allow_nan=False, separators=(",", ":")).encode()


def _address(value: Any) -> None:
    """an IP address"""
    if not isinstance(value, str) or not _ADDRESS.fullmatch(value):
        raise ValueError(value)


def _short_int(digits: str) -> int:
    if len(digits) > 20:
        raise ValueError("a number of too many digits")
    return int(digits)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


_TEXT = Text(MAX_TEXT)
# Numbers that ranks print have no bounds.
_PRINTED = (finite, NOTHING)
_PLACE = Exact({**dict.fromkeys(("step", "epoch"), _PRINTED), "elapsed_s": MAYBE_DURATION})
_LOST = Exact(
    {"since": (_PLACE, NOTHING), "first": _PLACE, "last": _PLACE, "stretches": Whole(_LARGE), "steps": _PRINTED}
)
_METRICS = Each(_PRINTED, Text(MAX_NAME), MAX_METRICS)


def _counted(value: Any) -> None:
    """a number that steps can be"""
    finite(value)
    if not -_MAX_COUNTED <= value <= _MAX_COUNTED:
        raise ValueError(value)


_PACE = Exact(
    {
        **dict.fromkeys(("first", "last"), _counted),
        **dict.fromkeys(("first_s", "last_s"), DURATION),
        **dict.fromkeys(("first_epoch", "last_epoch"), _PRINTED),
        "lines": Whole(_LARGE),
        "rising": bool,
        "over": bool,
        "?no_number": Whole(_LARGE),
    }
)
_PLAIN = (_TEXT, bool, float, NOTHING)
_CHECKPOINT = {"name": _TEXT, "step": MAYBE_INT, "epoch": MAYBE_INT, "time": TIME, "size": Whole(1 << 62)}
_CHECKPOINTS = Exact(
    {
        "newest": (Exact(_CHECKPOINT), NOTHING),
        "unfinished": (Exact({**_CHECKPOINT, "reason": _TEXT}), NOTHING),
        "?last": (Exact({**_CHECKPOINT, "complete": bool, "before": (_TEXT, NOTHING)}), NOTHING),
        # The answer to the order `aside`.
        "?aside": Exact({"attempt": Whole(_LARGE), "problem": _TEXT}),
        "problem": _TEXT,
    }
)
# A checkpoint that is set aside, the one before it, and whether all later ones go with it.
_ASIDE = Exact({"name": _TEXT, "time": TIME, "size": Whole(1 << 62), "before": _TEXT, "later": bool})
# A failure that the head passes on: of a known kind, with plain values.
_FAILURE = All((FAILURE, Each((*_PLAIN, Few(_PLAIN, _LARGE)), _TEXT, 32)))


def _attempts(names: Shape, budget: int) -> Shape:
    """Return the shape of attempts by the name of a process; "" is the whole job."""
    count = Whole(budget)
    return All(({"": count}, Each(count, (Is(("",)), names))))


def _process(world_size: int) -> Shape:
    """Return the shape of a process's name in a plan with this many ranks."""

    def process(value: Any) -> None:
        """a process of the plan"""
        found = _PROCESS.fullmatch(value) if isinstance(value, str) else None
        if found is None or int(found["rank"] or 0) >= world_size:
            raise ValueError(value)

    return process


def _process_fields(host: str, world_size: int) -> dict[str, Shape]:
    rank = Whole(world_size - 1)
    ranks = {"ranks": Few(rank, world_size), "rank": (rank, NOTHING)}
    return {"host": Is((host,)), "process": _process(world_size), **ranks}


def failure_shape(host: str, world_size: int) -> Shape:
    """Return the shape of a failure that `host` may report of its own processes."""
    fields = Exact(
        {
            **_process_fields(host, world_size),
            "kind": Is(KINDS_OF_NODES),
            "exit_code": (Whole(_LARGE, -_LARGE), NOTHING),
            "signal": (Whole(255), NOTHING),
            **dict.fromkeys(("result", "?reason", "?lost", "?who", "?error", "?stack", "?doubt"), _TEXT),
            "time": MAYBE_TIME,
            "?recover_after_s": MAYBE_DURATION,
            **dict.fromkeys(("?attempt", "?oom_kills"), Whole(_LARGE)),
            **dict.fromkeys(("?full", "?oom_of_job"), bool),
        }
    )
    return All((fields, ByKind({}, {kind: KINDS[kind].fields for kind in KINDS_OF_NODES})))


def shapes_from_node(host: str, world_size: int, budget: int) -> dict[str, Shape]:
    """Return the shapes of messages from `host` to the head of a job with this many ranks and restarts, by name."""
    attempts = _attempts(_process(world_size), budget)
    stuck = Exact({"kind": Is(("cannot_write",)), "host": Is((host,)), "folder": _TEXT, "reason": _TEXT})
    gone = Exact({"kind": Is(("folder_gone",)), "host": Is((host,)), "folder": _TEXT})
    report = {
        "host": Is((host,)),
        "ranks_running": Whole(world_size),
        "done": bool,
        "idle": bool,
        "rankless": Whole(MAX_FAILURES),
        "failures": Few(failure_shape(host, world_size), MAX_FAILURES),
        # A process that ended well.
        "?well": (Exact({**_process_fields(host, world_size), "time": TIME}), NOTHING),
        "metrics": _METRICS,
        "loss_not_a_number": (_LOST, NOTHING),
        "?checkpoints": (_CHECKPOINTS, NOTHING),
        "?pace": (_PACE, NOTHING),
        "?resumed": _TEXT,
        "attempts": attempts,
        "ready_for": (attempts, NOTHING),
        "cannot_write": (stuck, NOTHING),
        "?folder_gone": gone,
        "?held": _TEXT,
        "?suspect": _TEXT,
        "?time": TIME,
        "?excluded": (Exact({"reason": _TEXT, "temporary": bool}), NOTHING),
        "?progress": PROGRESS,
        # The rank that printed it.
        "?progress_rank": (Whole(max(0, world_size - 1)), NOTHING),
        "?place": (Whole(MAX_PLACES), NOTHING),
        # Whether no rank here may still save, once all were asked to end; and how they left.
        "?left": (bool, NOTHING),
        "?asked": (asked_shape(world_size), NOTHING),
        "?full": _TEXT,
        "?term": Whole(MAX_TERM),
        "?worlds": WORLDS,
        **daemon_requests.REPORTED,
    }
    return {
        "report": Exact(report),
        "stacks": Exact({"number": Whole(_LARGE), "ranks": Few(rank_shape(world_size), MAX_RANKS)}),
        "samples": report_shape(world_size),
        "stopped": Is((True,)),
    }


def check_from_node(message: Message, host: str, world_size: int, budget: int) -> None:
    """Check a message of `host`, which is one of these shapes. Raises BadMessage."""
    shapes = shapes_from_node(host, world_size, budget)
    name = next((name for name in shapes if name in message), "stopped")
    down = {"?goes_down": Is((True,))} if name == "stopped" else {}
    _check(message, Exact({name: shapes[name], **down}))


def shapes_from_head(processes: Collection[str], budget: int, hosts: Collection[str] = ()) -> dict[str, Shape]:
    """Return the shapes of messages from the head to a node with these processes, by name.

    A candidate knows the `hosts` of the job.
    """
    end = {
        "state": Is(STATES),
        "finished": TIME,
        "?after_s": DURATION,
        "?host": _TEXT,
        "?failure": _FAILURE,
        "?failures": Few(_FAILURE, 64),
    }
    orders = {
        "attempts": _attempts(Is(processes), budget),
        "go": bool,
        "?stacks": Whole(_LARGE),
        "?sample_stacks": Is((True,)),
        # Ranks of some node may still save.
        "?saving": Is((True,)),
        "?place": Whole(MAX_PLACES),
        "?absent": Few(Whole(MAX_PLACES), MAX_PLACES),
        "?moved": Each(_address, _address, MAX_MOVED),
        "?aside": Exact({"attempt": Whole(budget), "checkpoints": Few(_ASIDE, MAX_ASIDE)}),
        "?term": Whole(MAX_TERM),
        **daemon_requests.ORDERED,
        **({"?copy": copy_shape(hosts, budget)} if hosts else {}),
    }
    alone = {name: Exact({name: Is((True,))}) for name in ("resigns", "stands")}
    return {"orders": Exact(orders), "end": Exact({"end": Exact(end)}), **alone}


def check_from_head(message: Message, processes: Collection[str], budget: int, hosts: Collection[str] = ()) -> None:
    """Check a message of the head. Raises BadMessage."""
    shapes = shapes_from_head(processes, budget, hosts)
    _check(message, next((shapes[name] for name in ("end", "resigns", "stands") if name in message), shapes["orders"]))


def _check(message: Message, shape: Shape) -> None:
    """Raise BadMessage unless a message is empty or has this shape."""
    wrong = misfit(message, shape) if message else ""
    if wrong:
        raise BadMessage(ascii(wrong)[1:-1][:160])
