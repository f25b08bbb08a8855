# SPDX-License-Identifier: Apache-2.0
"""Check the settings of what measures: collective_benchmark.yml, pair_check.yml and collective_check.yml. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from ..findings.findings import Finding
from ..job.launchers import LAUNCHERS

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast")
BACKENDS = ("auto", "nccl", "gloo", "hccl", "mpi")
FRAMEWORKS = ("pytorch", "mindspore", "oneflow", "mpi")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}

# Says what a value is expected to be; "" where it is that.
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


_GBPS = _between(0, 1e6, "GB/s, or 0 where nothing is expected")
_SHARE = _between(1e-9, 1, "a number above 0, at most 1")
_ROUNDS: Rule = lambda value: "" if value == "full" else _at_least(1)(value) and "a whole number, at least 1, or full"  # noqa: E731

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
    "pair_rounds": _ROUNDS,
    "pair_retests": _between(0, 3, "a whole number from 0 to 3"),
    "pair_backend": _one_of(*BACKENDS[:-1]),
    "pair_max_bytes": _size,
    "pair_timeout": _at_least(1),
    "pair_busbw": _GBPS,
    "pair_tolerance": _between(0, 0.999, "a number from 0, below 1"),
    "check_framework": _one_of(*FRAMEWORKS),
    "check_launcher": lambda value: "" if value == "" else _one_of(*LAUNCHERS)(value),
    "check_nodes": _at_least(0),
    "check_timeout": _at_least(1),
}


def findings(given: Mapping[str, Any]) -> list[Finding]:
    """Find settings that nothing can be measured with; `given` has those variables that somebody has set."""
    found = [
        _finding(name, str(given[name]), expected)
        for name, rule in RULES.items()
        if name in given and (expected := rule(given[name]))
    ]
    least, most = size(given.get("benchmark_min_bytes")), size(given.get("benchmark_max_bytes"))
    if least is not None and most is not None and least > most:
        asked = f"{given['benchmark_min_bytes']}, with benchmark_max_bytes {given['benchmark_max_bytes']}"
        found.append(_finding("benchmark_min_bytes", asked, "at most benchmark_max_bytes"))
    if given.get("benchmark_within") == "node" and given.get("benchmark_backend") == "mpi":
        found.append(
            _finding("benchmark_within", "node, with benchmark_backend mpi", "cluster, as mpi spans all nodes")
        )
    return found


def _finding(name: str, found: str, expected: str) -> Finding:
    return Finding(name, found, expected, f"correct {name}, or leave it out")
