# SPDX-License-Identifier: Apache-2.0
"""Check the settings of what measures: collective_benchmark.yml, pair_check.yml and collective_check.yml. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from ..base.findings import Finding
from ..cluster.ssh_mesh import parse_duration
from ..job.launchers import LAUNCHERS

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "alltoall", "sendrecv")
BACKENDS = ("auto", "nccl", "gloo", "hccl", "mpi")
# The phases that a soak repeats, but for the counters.
MEASURING = ("compute", "storage", "collectives", "bandwidth", "stragglers")
FRAMEWORKS = ("pytorch", "mindspore", "oneflow", "mpi")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}

# Returns the expected value; "" for a correct one.
Rule = Callable[[Any], str]


def size(text: Any) -> int | None:
    """Read 8, 4K, 32M or 1G as bytes; None for anything else."""
    match = re.fullmatch(r"([1-9]\d{0,14})([KMG]?)", str(text).strip().upper())
    return int(match[1]) * _UNITS[match[2]] if match else None


def _one_of(*names: str) -> Rule:
    return lambda value: "" if value in names else f"one of {', '.join(names)}"


def _at_least(least: int) -> Rule:
    return lambda value: "" if _number(value, least) >= least else f"a whole number, at least {least}"


def _number(value: Any, least: float) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return least - 1


def _between(least: float, most: float, expected: str) -> Rule:
    return lambda value: "" if least <= _number(value, least) <= most else expected


def _size(value: Any) -> str:
    return "" if size(value) is not None else "a number of bytes, such as 8, 4K, 32M or 1G"


def _rounds(value: Any) -> str:
    return "a whole number, at least 1, or full" if value != "full" and _at_least(1)(value) else ""


def _launcher(value: Any) -> str:
    return "" if value == "" else _one_of(*LAUNCHERS)(value)


def _duration(value: Any) -> str:
    try:
        return "" if value == "" or 0 < parse_duration(str(value)) <= _MOST_S else _DURATION
    except ValueError:
        return _DURATION


_MOST_S, _DURATION = 30 * 86400, "a duration up to 30d such as 90m, 2h or 1d12h"
_GBPS = _between(0, 1e6, "GB/s, or 0 where nothing is expected")
_SHARE = _between(1e-9, 1, "a number above 0, at most 1")
RULES: Mapping[str, Rule] = {
    "benchmark_collective": _one_of(*COLLECTIVES),
    "benchmark_backend": _one_of(*BACKENDS),
    "benchmark_program": _one_of("auto", "own"),
    "benchmark_within": _one_of("cluster", "node"),
    "benchmark_nodes": _at_least(0),
    "benchmark_min_bytes": _size,
    "benchmark_max_bytes": _size,
    "benchmark_factor": _at_least(2),
    "benchmark_iterations": _at_least(1),
    "benchmark_warmup": _at_least(0),
    "benchmark_timeout": _at_least(1),
    "benchmark_busbw": _GBPS,
    "benchmark_fraction": _SHARE,
    "pair_rounds": _rounds,
    "pair_retests": _between(0, 3, "a whole number from 0 to 3"),
    "pair_backend": _one_of(*BACKENDS[:-1]),
    "pair_max_bytes": _size,
    "pair_timeout": _at_least(1),
    "pair_busbw": _GBPS,
    "pair_tolerance": _between(0, 0.999, "a number from 0, below 1"),
    "check_framework": _one_of(*FRAMEWORKS),
    "check_launcher": _launcher,
    "check_nodes": _at_least(0),
    "check_timeout": _at_least(1),
    "verify_soak": _duration,
}


def findings(given: Mapping[str, Any]) -> list[Finding]:
    """Find settings that nothing can be measured with; `given` has those variables that are set."""
    wrong = [(name, str(given[name]), rule(given[name])) for name, rule in RULES.items() if name in given]
    least, most = size(given.get("benchmark_min_bytes")), size(given.get("benchmark_max_bytes"))
    if least is not None and most is not None and least > most:
        both = f"{given['benchmark_min_bytes']}, with benchmark_max_bytes {given['benchmark_max_bytes']}"
        wrong.append(("benchmark_min_bytes", both, "at most benchmark_max_bytes"))
    if given.get("benchmark_within") == "node" and given.get("benchmark_backend") == "mpi":
        wrong.append(("benchmark_within", "node, with benchmark_backend mpi", "cluster, as mpi spans all nodes"))
    if given.get("verify_soak") and not set(MEASURING) & set(given.get("verify_phases", MEASURING)):
        phases = ", ".join(given["verify_phases"])
        wrong.append(("verify_soak", f"with verify_phases {phases}", f"a phase that measures: {', '.join(MEASURING)}"))
    action = "correct {}, or leave it out"
    return [Finding(name, found, expected, action.format(name)) for name, found, expected in wrong if expected]
