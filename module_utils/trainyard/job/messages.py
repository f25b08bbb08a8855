# SPDX-License-Identifier: Apache-2.0
"""What the monitors of a job may say to each other: which fields a message has, and within which bounds.

A monitor that knows the job's token may still say what no monitor says: every rank can read the token, and a node may
be ill. What is not as expected here ends a connection, and nothing of it is kept. An empty message says that nothing
is new.

    node to head    {} | {"report": {...}} | {"stopped": true}
    head to node    {} | {"attempts": {...}, "go": true} | {"end": {...}}
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from .failure import KINDS
from .progress import MOST_METRICS, MOST_NAME

Message = dict[str, Any]
Check = Callable[[Any], bool]

# Lines of logs that a failure quotes, names of hosts and the like, in characters.
MOST_TEXT = 2000
MOST_FAILURES = 4096
# What no exit status, process id or count of processes exceeds.
_LARGE = 1 << 32
STATES = ("succeeded", "failed", "timed_out", "stopped")
_PROCESS = re.compile(r"agent|mpirun|scheduler|rank(?P<rank>0|[1-9]\d{0,8})")


class BadMessage(ValueError):
    """Not what a monitor says. The text says what is wrong with it."""


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
    """Write a message."""
    return json.dumps(message, allow_nan=False, separators=(",", ":")).encode()


def _short_int(digits: str) -> int:
    if len(digits) > 20:
        raise ValueError("a number of too many digits")
    return int(digits)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _bool(value: Any) -> bool:
    return isinstance(value, bool)


def _text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MOST_TEXT and not re.search("[\ud800-\udfff]", value)


def _number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _whole(most: int, least: int = 0) -> Check:
    return lambda value: type(value) is int and least <= value <= most


def _maybe(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _list(check: Check, most: int) -> Check:
    return lambda value: isinstance(value, list) and len(value) <= most and all(map(check, value))


def _record(fields: Mapping[str, Check], more: Mapping[str, Check]) -> Check:
    """Return the check of an object that has all of `fields`, maybe some of `more`, and nothing else."""
    known = {**more, **fields}

    def check(value: Any) -> bool:
        return (
            isinstance(value, dict)
            and fields.keys() <= value.keys() <= known.keys()
            and all(known[name](value[name]) for name in value)
        )

    return check


_PLACE = _record({name: _maybe(_number) for name in ("step", "epoch", "elapsed_s")}, {})
_LOST = _record(
    {"since": _maybe(_PLACE), "first": _PLACE, "last": _PLACE, "stretches": _whole(_LARGE), "steps": _maybe(_number)},
    {},
)


def _metrics(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and len(value) <= MOST_METRICS
        and all(len(name) <= MOST_NAME and _text(name) for name in value)
        and all(map(_maybe(_number), value.values()))
    )


def _attempts(names: Check, budget: int) -> Check:
    """Return the check of how often what was started again; "" is the whole job."""
    count = _whole(budget)
    return lambda value: (
        isinstance(value, dict)
        and "" in value
        and all((name == "" or names(name)) and count(often) for name, often in value.items())
    )


def _process(world_size: int) -> Check:
    """Return the check of a process's name, as a plan of this many ranks may have it."""

    def check(value: Any) -> bool:
        found = _PROCESS.fullmatch(value) if isinstance(value, str) else None
        return found is not None and (found["rank"] is None or int(found["rank"]) < world_size)

    return check


def failure_check(host: str, world_size: int) -> Check:
    """Return the check of a failure that `host` may tell of its own processes."""
    rank = _whole(world_size - 1)
    fields: dict[str, Check] = {
        "kind": lambda value: value in ("exit", "not_joined"),
        "host": lambda value: bool(value == host),
        "process": _process(world_size),
        "ranks": _list(rank, world_size),
        "rank": _maybe(rank),
        "exit_code": _maybe(_whole(_LARGE, -_LARGE)),
        "signal": _maybe(_whole(255)),
        "result": _text,
        "time": _maybe(_number),
    }
    more = {"recover_after_s": _maybe(_number), "attempt": _whole(_LARGE), "recorded": _bool}
    return _record(fields, {**more, "reason": _text, "who": _text})


def check_from_node(message: Message, host: str, world_size: int, budget: int) -> None:
    """Check what `host` says to the head of a job with this many ranks and restarts. Raises BadMessage."""
    attempts = _attempts(_process(world_size), budget)
    stuck: dict[str, Check] = {
        "kind": lambda value: bool(value == "cannot_write"),
        "host": lambda value: bool(value == host),
        "folder": _text,
        "reason": _text,
    }
    report: dict[str, Check] = {
        "host": lambda value: bool(value == host),
        "ranks_running": _whole(world_size),
        "done": _bool,
        "idle": _bool,
        "rankless": _whole(MOST_FAILURES),
        "failures": _list(failure_check(host, world_size), MOST_FAILURES),
        "metrics": _metrics,
        "loss_not_a_number": _maybe(_LOST),
        "attempts": attempts,
        "ready_for": _maybe(attempts),
        "cannot_write": _maybe(_record(stuck, {})),
    }
    if message.keys() == {"report"}:
        _demand("report", message["report"], report, {})
    elif message:
        _demand("message", message, {"stopped": lambda value: value is True}, {})


def check_from_head(message: Message, processes: Collection[str], budget: int) -> None:
    """Check what the head says to a node with these processes. Raises BadMessage."""
    orders: dict[str, Check] = {"attempts": _attempts(lambda name: name in processes, budget), "go": _bool}
    end: dict[str, Check] = {"state": lambda value: value in STATES, "finished": _number}
    more: dict[str, Check] = {"after_s": _number, "host": _text, "failure": _told, "failures": _list(_told, 64)}
    if message.keys() == {"end"}:
        _demand("end", message["end"], end, more)
    elif message:
        _demand("orders", message, orders, {})


def _told(value: Any) -> bool:
    """Check a failure that the head passes on: of a known kind, with plain values."""
    if not isinstance(value, dict) or value.get("kind") not in KINDS or len(value) > 32:
        return False

    def plain(one: Any) -> bool:
        return one is None or _text(one) or _bool(one) or _number(one)

    return all(_text(name) and (plain(one) or _list(plain, _LARGE)(one)) for name, one in value.items())


def _demand(what: str, value: Any, fields: Mapping[str, Check], more: Mapping[str, Check]) -> None:
    """Raise BadMessage, which names the bad fields, unless `value` has all of `fields`, maybe some of `more`."""
    if _record(fields, more)(value):
        return
    known = {**more, **fields}
    names = value.keys() | fields.keys() if isinstance(value, dict) else ()
    bad = sorted(name for name in names if name not in known or name not in value or not known[name](value[name]))
    raise BadMessage(f"{what} with a wrong {ascii(', '.join(bad))[:100]}" if bad else f"no {what}")
