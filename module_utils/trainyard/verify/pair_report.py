# SPDX-License-Identifier: Apache-2.0
"""Read what training/benchmark/pairs.py printed: measurements of pairs for stragglers.verify().

A node with several devices has a process for each: a pair of nodes is then measured on several rails at once, and each
rail is checked by itself, as one slow device of eight hardly shows in their sum. Bandwidths in GB/s.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..base.checks import shown, worst
from ..base.findings import Finding, counted, grouped, refusal_text
from . import latency, stragglers
from .straggler_limits import Limits

Measurement = dict[str, Any]


def read(logs: Iterable[str]) -> list[Measurement]:
    """Return the measurements that the ranks printed; a line that was cut off is none.

    If there are two lines about one pair (neither node had a measurement), both are returned.
    """
    found = []
    for log in logs:
        for line in log.splitlines():
            _, mark, text = line.partition("pair {")
            try:
                record = json.loads("{" + text) if mark else None
            except (ValueError, RecursionError):
                continue
            if isinstance(record, dict) and _sound(record):
                found.append(record)
    return found


def _sound(record: Mapping[str, Any]) -> bool:
    hosts, busbw = record.get("hosts"), record.get("busbw")
    return (
        isinstance(hosts, list)
        and len(hosts) == 2
        and all(isinstance(host, str) for host in hosts)
        and isinstance(record.get("round"), int)
        and isinstance(record.get("rail", 0), int)
        # JSON knows no largest whole number.
        and (busbw is None or isinstance(busbw, float) or (isinstance(busbw, int) and abs(busbw) < 2**53))
    )


def complete(
    schedule: Sequence[Sequence[Sequence[str]]], found: Sequence[Measurement], failed: Mapping[str, str], first: int = 0
) -> list[Measurement]:
    """Return the measurements with rounds counted from `first`, and an error for each pair that a failed host ruined.

    `failed` says why a host ended the job before its pairs were measured. A pair of two other hosts that is missing was
    ended with the job: that says nothing about it, so it stays missing.
    """
    known = {(record["round"], *sorted(record["hosts"])) for record in found}
    lost = [
        {"hosts": list(pair), "round": number, "rail": 0, "busbw": None, "wrong": None, "error": failed[host]}
        for number, pairs in enumerate(schedule)
        for pair in pairs
        if (number, *sorted(pair)) not in known
        for host in pair
        if host in failed
    ]
    return [{**record, "round": record["round"] + first} for record in [*found, *lost]]


def verify(
    hosts: Sequence[str],
    measurements: Sequence[Measurement],
    *,
    expected: float | None = None,
    limits: Limits | None = None,
    inventory: str = "",
) -> dict[str, Any]:
    """Return the result over all rails: for each node that of the rail where it does worst.

    As stragglers.verify(), with `rails` in addition: the result of each rail by its number, where there are several.
    """
    by_rail = grouped((int(record.get("rail") or 0), record) for record in measurements) or {0: []}
    each = {
        rail: stragglers.verify(hosts, by_rail[rail], expected=expected, limits=limits, inventory=inventory)
        for rail in sorted(by_rail)
    }
    rails = list(each)
    small = latency.of_pairs(measurements)
    if len(each) == 1:
        return latency.name_slow(next(iter(each.values())), small)
    state = worst(checked["state"] for checked in each.values())
    decisive = next(rail for rail in rails if each[rail]["state"] == state)
    nodes = []
    for place in range(len(hosts)):
        of_rails = {rail: each[rail]["nodes"][place] for rail in rails}
        node_state = worst(node["state"] for node in of_rails.values())
        rail = min(
            (rail for rail in rails if of_rails[rail]["state"] == node_state),
            key=lambda rail: -1.0 if of_rails[rail]["score"] is None else of_rails[rail]["score"],
        )
        node = of_rails[rail]
        bad = [str(rail) for rail in rails if of_rails[rail]["state"] == node_state]
        where = f"on device {', '.join(bad)} of {len(rails)}: " if node_state in ("fail", "unknown") else ""
        nodes.append({**node, "reason": f"{where}{node['reason']}" if node["reason"] else "", "rail": rail})
    reason = each[decisive]["reason"]
    joined = {
        **each[decisive],
        "state": state,
        "reason": f"on device {decisive}: {reason}" if reason and state in ("fail", "unknown") else reason,
        "nodes": nodes,
        "suspects": [host for host in hosts if any(host in checked["suspects"] for checked in each.values())],
        "retest": next((checked["retest"] for checked in each.values() if checked["retest"]), []),
        "pairs": [pair for checked in each.values() for pair in checked["pairs"]],
        "rails": {str(rail): {key: each[rail][key] for key in ("state", "reason", "median", "gate")} for rail in rails},
    }
    return latency.name_slow(joined, small)


def refusal(checked: Mapping[str, Any], findings: Sequence[Finding]) -> dict[str, Any]:
    """Return the result of pairs that could not be measured, because the job was refused."""
    more = f", and {counted(len(findings) - 1, 'more finding')}" if len(findings) > 1 else ""
    reason = f"{refusal_text(findings)}{more}"
    return {**checked, "state": "fail", "reason": reason, "retest": []}


def describe(checked: Mapping[str, Any]) -> str:
    """Return the result for reading: a line, and another one for each node that is not well."""
    median, gate = checked["median"], checked["gate"]
    speed = f", median {median:.2f} GB/s, gate {gate:.2f}" if median and gate else ""
    measured = counted(len(checked["pairs"]), "measurement")
    speed += f", {checked['latency']['us']:.4g} µs for small messages" if checked.get("latency") else ""
    lines = [f"  pairs: {shown(checked['state'])}, {measured}{speed}; {checked['reason']}".rstrip("; ")]
    lines += [
        f"    {node['host']}  {node['state']}, confidence {node['confidence']:.0%}: {node['reason']}"
        for node in checked["nodes"]
        if node["state"] in ("fail", "unknown") and node["reason"]
    ]
    return "\n".join(lines)
