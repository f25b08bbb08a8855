# SPDX-License-Identifier: Apache-2.0
"""Judge how long small messages take, against the site's baseline or among pairs of nodes. Pure.

Times are microseconds, and medians: one that was disturbed does not count. docs/bandwidth.md has the limits.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from ..base.checks import Check
from ..base.findings import counted, grouped, host_list
from ..nvidia.nccl_tests_output import Row
from .bandwidth import FRACTION

# The smallest sizes of a benchmark, as far as they are small.
_SIZES, _SMALL_BYTES = 3, 64 << 10
# A further switch adds some microseconds; with other work on the processors, gloo and MPI wait for their turn, some
# milliseconds each time.
_TIMES, _MORE_US, _MORE_CPU_US = 3.0, 50.0, 50_000.0
_ACTION = "compare the power saving of processors, the interrupts of the network card and the route with other nodes"
# No message takes longer than the job that sends it.
_MOST_US = 1e10


def limit(usual: float, backend: str, fraction: float = FRACTION) -> float:
    """Return the longest time that passes; a smaller `fraction` of the expected bandwidth allows more of it, too."""
    more = _MORE_US if backend in ("nccl", "hccl") else _MORE_CPU_US
    return round(max(_TIMES * usual, usual + more) * FRACTION / fraction, 1)


def of_benchmark(
    rows: Sequence[Row], backend: str, baseline: Mapping[str, Any] | None, fraction: float
) -> dict[str, Any] | None:
    """Return `us` of a benchmark, up to how many `bytes`, and `limit_us`, None without an equal `baseline`."""
    sizes = sorted({row.bytes for row in rows if 0 < row.bytes <= _SMALL_BYTES})[:_SIZES]
    halves = [half for row in rows if row.bytes in sizes for half in (row.out_of_place, row.in_place) if half]
    times = [half.time_us for half in halves if half.time_us]
    if not times:
        return None
    usual = (baseline or {}).get("latency_us")
    equal = usual is not None and (baseline or {}).get("latency_bytes") == sizes[-1]
    most = limit(float(usual), backend, fraction) if usual is not None and equal else None
    return {"us": round(statistics.median(times), 2), "bytes": sizes[-1], "limit_us": most}


def slow(latency: Mapping[str, Any] | None) -> str:
    """Say that the small messages of a benchmark take too long; "" if they do not, or nothing says how long."""
    if not latency or latency["limit_us"] is None or latency["us"] <= latency["limit_us"]:
        return ""
    return f"messages up to {latency['bytes']} bytes take {_text(latency['us'])}, expected {most(latency)} (baseline)"


def most(latency: Mapping[str, Any]) -> str:
    """Return the limit as text."""
    return f"at most {_text(latency['limit_us'])}"


def _text(us: float) -> str:
    return f"{us:.4g} µs" if us < 1000 else f"{us / 1000:.4g} ms"


def of_pairs(measurements: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Compare the pairs of nodes: `us`, `limit_us` (None: one pair alone), number of `pairs`, and the `slow` ones.

    The usual time is the median of the nodes' fastest pairs, as one slow node may be in most of the pairs. A node with
    a fast pair is cleared: a slow pair of two cleared ones was disturbed, or is far. A node that is slow with a cleared
    one explains all its pairs. Two that only met each other are both named.
    """
    times = grouped(
        (tuple((str(host), int(record.get("rail") or 0)) for host in sorted(record["hosts"])), record["latency_us"])
        for record in measurements
        if isinstance(record.get("latency_us"), (int, float)) and 0 < record["latency_us"] < _MOST_US
    )
    pairs = {ends: statistics.median(values) for ends, values in times.items()}
    if not pairs:
        return None
    best: dict[tuple[str, int], float] = {}
    for ends, us in pairs.items():
        best.update({end: min(us, best.get(end, us)) for end in ends})
    usual = statistics.median_low(best.values())
    backend = next((str(record["backend"]) for record in measurements if record.get("backend")), "")
    gate = limit(usual, backend) if len(pairs) > 1 else None
    late = {ends: us for ends, us in pairs.items() if gate is not None and max(best[end] for end in ends) > gate}
    alone = {end for ends in late for end, other in (ends, ends[::-1]) if best[other] <= (gate or 0) < best[end]}
    blamed = grouped((tuple(end for end in ends if end in alone)[:1] or ends, us) for ends, us in late.items())
    found = []
    for ends, values in blamed.items():
        hosts = [host for host, _ in ends]
        found.append({"hosts": hosts, "rail": ends[0][1], "us": max(values), "pairs": len(values)})
    return {"us": usual, "limit_us": gate, "pairs": len(pairs), "slow": found}


def name_slow(checked: dict[str, Any], latency: dict[str, Any] | None) -> dict[str, Any]:
    """Return the result of pairs with their `latency`, in which slow nodes fail, and of two both are unknown."""
    nodes, reasons = {node["host"]: dict(node) for node in checked["nodes"]}, []
    for each in (latency or {}).get("slow", ()):
        who = "it" if len(each["hosts"]) == 1 else "one of the two, or the way between them,"
        times = f"up to {_text(each['us'])}, expected {most(latency or {})}"
        text = f"small messages with {who} take {times}, in {counted(each['pairs'], 'pair')} of device {each['rail']}"
        reasons.append(f"{host_list(each['hosts'])}: {text}")
        for host in each["hosts"]:
            if nodes[host]["state"] not in ("fail", "unknown"):
                state = "fail" if len(each["hosts"]) == 1 else "unknown"
                nodes[host].update(state=state, reason=text, action=_ACTION)
    named = {**checked, "nodes": list(nodes.values()), "latency": latency}
    if not reasons:
        return named
    return {**named, "state": "fail", "reason": checked["reason"] if checked["state"] == "fail" else reasons[0]}


def pair_check(latency: Mapping[str, Any], again: str) -> Check:
    """Return the check of pairs without a slow node."""
    alone = latency["limit_us"] is None
    found = f"{_text(latency['us'])} over {counted(latency['pairs'], 'pair')}"
    reason = "one pair has nothing to compare it with" if alone else ""
    state, expected = ("skipped", "") if alone else ("pass", most(latency))
    return Check("stragglers", "latency of pairs", state, (), found, expected, reason, "", again)
