# SPDX-License-Identifier: Apache-2.0
"""What nodes may answer, as far as the controller builds on it: a node's word is looked at before it is used.

A shape is a type, a tuple of shapes (one of them), a list of one shape (any number of it), a dictionary of shapes by
name (a name that begins with `?` may be missing; others may be there besides), Each (any names, one shape), ByKind (a
dictionary of one of these kinds, with what each has), or a function that raises ValueError for what is not meant.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from .run_record import FINAL

Shape = Any
NOTHING = type(None)
# Beyond it, arithmetic on whole numbers and on others is no longer the same.
_MOST = 2**63


class Each(NamedTuple):
    """A dictionary with any names, whose values have one shape."""

    value: Shape


class ByKind(NamedTuple):
    """A dictionary with a `kind`, and what all kinds have, and what those that there are have besides."""

    all: Mapping[str, Shape]
    kinds: Mapping[str, Mapping[str, Shape]]


def misfit(value: Any, shape: Shape, where: str = "") -> str:
    """Return where and how a value differs from a shape, "" where it does not."""
    if isinstance(shape, ByKind):
        kind = value.get("kind") if isinstance(value, dict) else None
        if not isinstance(kind, str) or kind not in shape.kinds:
            return _differs(kind, f"one of {', '.join(sorted(shape.kinds))}", f"{where}.kind")
        return _of_dictionary(value, {**shape.all, **shape.kinds[kind]}, where)
    if isinstance(shape, Each):
        return _of_dictionary(value, dict.fromkeys(value, shape.value) if isinstance(value, dict) else {}, where)
    if isinstance(shape, tuple):
        each = [misfit(value, one, where) for one in shape]
        return "" if "" in each else each[0]
    if isinstance(shape, dict):
        return _of_dictionary(value, shape, where)
    if isinstance(shape, list):
        if not isinstance(value, list):
            return _differs(value, "a list", where)
        return next((wrong for at, one in enumerate(value) if (wrong := misfit(one, shape[0], f"{where}[{at}]"))), "")
    if shape in _NAMES:
        return "" if _is(value, shape) else _differs(value, _NAMES[shape], where)
    try:
        shape(value)
    except ValueError:
        return _differs(value, shape.__doc__, where)
    return ""


_NAMES = {str: "text", int: "a whole number", float: "a number", bool: "true or false", NOTHING: "nothing", object: ""}


def _is(value: Any, kind: type) -> bool:
    if kind is float:
        kind = int if isinstance(value, int) else float
    if isinstance(value, bool) or kind is bool:
        return isinstance(value, bool) and kind in (bool, object)
    if kind in (int, float):
        return isinstance(value, kind) and abs(value) < _MOST and math.isfinite(value)
    return isinstance(value, kind)


def _of_dictionary(value: Any, shapes: Mapping[str, Shape], where: str) -> str:
    if not isinstance(value, dict):
        return _differs(value, "names with values", where)
    for name, shape in shapes.items():
        key = name.removeprefix("?")
        if key not in value:
            if name != key:
                continue
            return f"{where or 'it'} has no {key}"
        wrong = misfit(value[key], shape, f"{where}.{key}" if where else key)
        if wrong:
            return wrong
    return ""


def _differs(value: Any, expected: str, where: str) -> str:
    return f"{where or 'it'} is {repr(value)[:60]}, expected {expected}"


def address(value: Any) -> None:
    """an address with its network"""
    if not isinstance(value, str):
        raise ValueError(value)
    ipaddress.ip_interface(value)


MAYBE_TEXT, MAYBE_INT, MAYBE_NUMBER = (str, NOTHING), (int, NOTHING), (float, NOTHING)
EXIT = {"exit_code": MAYBE_INT, "signal": MAYBE_INT, "result": str, "time": float}


def end_state(value: Any) -> None:
    """how a job ends"""
    if not isinstance(value, str) or value not in FINAL:
        raise ValueError(value)


_SILENT = {"host": str, "after_s": float}
FAILURE = ByKind(
    {
        **{f"?{name}": MAYBE_TEXT for name in ("host", "process", "result", "seen_by", "reason", "error", "who")},
        **{f"?{name}": MAYBE_NUMBER for name in ("after_s", "time", "recover_after_s", "ranks_running")},
        **{f"?{name}": MAYBE_INT for name in ("rank", "exit_code", "signal", "attempt")},
        "?ranks": [int],
        "?hosts": [str],
    },
    {
        "exit": {"host": str, "process": str, "ranks": [int], "result": str},
        "not_joined": {"host": str, "process": str, "who": str},
        "silent": _SILENT,
        "head_silent": {**_SILENT, "seen_by": str},
        "absent": _SILENT,
        "frozen": _SILENT,
        "rebooted": {"host": str},
        "not_back": {"hosts": [str], "after_s": float},
        "cannot_write": {"host": str, "folder": str, "reason": str},
    },
)
END = {
    "state": end_state,
    "finished": float,
    "?host": MAYBE_TEXT,
    "?after_s": MAYBE_NUMBER,
    "?failure": (FAILURE, NOTHING),
    "?failures": [FAILURE],
}
METRICS = Each(MAYBE_NUMBER)
NOT_A_NUMBER = {"since": (METRICS, NOTHING), "first": METRICS, "last": METRICS, "stretches": int, "steps": MAYBE_NUMBER}
RESTART = {"elapsed_s": MAYBE_NUMBER, "reason": str, "restarted": str, "failure": FAILURE}
CLUSTER = {
    "started": float,
    "elapsed_s": float,
    "metrics": METRICS,
    "?loss_not_a_number": (NOT_A_NUMBER, NOTHING),
    "world_size": int,
    "ranks_running": int,
    "restarts": {"history": [RESTART]},
    "end": (END, NOTHING),
}
STATUS = {
    "known": bool,
    "monitor_alive": bool,
    "processes": [{"name": str, "ranks": [int], "exit": (EXIT, NOTHING)}],
    "monitor": ({"started": float, "end": (END, NOTHING)}, NOTHING),
    "cluster": (CLUSTER, NOTHING),
    "left": int,
}
FINDING = dict.fromkeys(("host", "check", "found", "expected", "action"), str)
INTERFACE = {"name": str, "up": bool, "mtu": MAYBE_INT, "kind": str, "addresses": [address]}
NODE = {
    "hostname": str,
    "boot_id": MAYBE_TEXT,
    "cpus": int,
    "memory_mib": MAYBE_INT,
    "service_manager": MAYBE_TEXT,
    "container": MAYBE_TEXT,
    "packages": Each(MAYBE_TEXT),
    "accelerators": {"vendor": MAYBE_TEXT, "devices": [{"index": int, "physical_id": MAYBE_INT}], "problems": [str]},
    "npu": ({"?devices": [{"index": int, "physical_id": int, "device_ip": MAYBE_TEXT}], "?chip": MAYBE_TEXT}, NOTHING),
    "networks": {"interfaces": [INTERFACE], "rdma": [{"device": str, "port": int, "active": bool}], "problems": [str]},
    "mpi": (Each(MAYBE_TEXT), NOTHING),
    "fingerprint": str,
    "free_ports": [int],
}
LOGS = Each(str)
FOLDER = {"job_id": str, "job_dir": str, "age_s": float, "running": bool, "size_mib": int}
SHAPES: dict[str, Shape] = {
    "probe": {"node": NODE},
    "preflight": {"findings": [FINDING], "programs": Each(Each(str)), "stale": bool, "?node": NODE},
    "start": {"changed": bool, **STATUS},
    "state": {**STATUS, "?line": str, "?restarts": [str]},
    "collect": {"changed": bool, **STATUS, "logs": LOGS},
    "remove": {"changed": bool, **STATUS},
    "folders": {"folders": [FOLDER]},
    "slurm_logs": {"logs": LOGS, "exits": [Each(object)]},
    "slurm_submit": {"engine_id": str},
    "slurm_end": {"changed": bool},
}


def checked(question: str, answer: dict[str, Any]) -> dict[str, Any]:
    """Return a node's answer to a question of the agent, or one that failed, with why it is none."""
    if answer.get("failed"):
        return {name: answer[name] for name in ("failed", "msg", "exception", "rc") if name in answer}
    wrong = misfit(answer, SHAPES.get(question, {}))
    if not wrong:
        return answer
    return {"failed": True, "msg": f"what it answers cannot be used: {wrong}; look at that node before it runs a job"}
