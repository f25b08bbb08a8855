# SPDX-License-Identifier: Apache-2.0
"""Checks of the phases bandwidth and stragglers, from what was measured. Bandwidths in GB/s (1e9 bytes a second).

A benchmark is the record that benchmark.verify() returns; stragglers are what stragglers.verify() returns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from ..base.checks import Check
from ..base.findings import counted
from . import latency

Record = Mapping[str, Any]
# The part that a bandwidth loses over a soak before it counts; messages that processors carry wait for other programs.
FALL, FALL_CPU = 0.1, 0.5


def size_text(size: int) -> str:
    """Return 8 MiB for 8388608, with the largest unit that divides it."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor and size % factor == 0:
            return f"{size // factor} {unit}"
    return f"{size} bytes"


_ACTIONS = {
    "fail": "see the phase stragglers for the node, and the log of the run",
    "unknown": "read the reason, and the log of the run",
    "skipped": "give the expected value (verify_busbw), or keep this as the baseline (verify_save_baseline=true)",
}


def benchmark_checks(record: Record, again: str) -> list[Check]:
    """Check one benchmark: its bandwidth, and the path that the bytes took where that could be seen.

    A bandwidth that was saved as the site's `baseline` is the expected one from then on.
    """
    saved = record["state"] == "skipped" and bool(record.get("baseline"))
    state = "pass" if saved else record["state"]
    hosts = tuple(record["hosts"]) if len(record["hosts"]) == 1 else ()
    name = record["collective"] or "benchmark"
    name += f" over {record['backend']}" if record["backend"] else ""
    name += f" inside {hosts[0]}" if hosts else ""
    found = "nothing was measured"
    if record["busbw_largest"] is not None:
        largest = max(size["bytes"] for size in record["sizes"])
        speed = f"busbw {record['busbw_largest']:.2f} GB/s at {size_text(largest)}"
        found = f"{speed} over {counted(record['ranks'], 'rank')}"
        small = record.get("latency")
        found += f", {small['us']:.4g} µs up to {size_text(small['bytes'])}" if small else ""
        found += f", saved as the baseline in {record['baseline']}" if record.get("baseline") else ""
    expected, source = ("the bandwidth that is saved as the baseline", "saved by this run") if saved else ("", "")
    figure = record.get("expected")
    if figure:
        expected = f"at least {figure['gate']:.2f} GB/s, {figure['fraction']:.0%} of {figure['busbw']:.2f}"
        source = figure["source"]
    if (small := record.get("latency")) and small["limit_us"] is not None:
        expected += f", and {latency.most(small)}" if expected else latency.most(small)
    reason = "" if saved else record["reason"]
    data = {"job_id": record.get("job_id", ""), "busbw_largest": record["busbw_largest"]}
    if record["busbw_largest"]:
        figures = {f"busbw of {name}": {hosts[0] if hosts else "": record["busbw_largest"]}}
        data |= {"figures": figures, "fall": FALL if record["backend"] in ("nccl", "hccl") else FALL_CPU}
    check = partial(Check, "bandwidth")
    checks = [check(name, state, hosts, found, expected, reason, _ACTIONS.get(state, ""), again, source, data)]
    path = record.get("path")
    # A healthy path does not make an unchecked bandwidth a checked one.
    if path and not (state == "skipped" and path["state"] == "pass"):
        found = ", ".join(path["devices"]) or "no device that is known to have carried the bytes"
        expected = "the network that is meant for it"
        action = "" if path["state"] == "pass" else "read NCCL's lines in the log (NCCL_DEBUG=INFO)"
        checks.append(check(f"path of {name}", path["state"], hosts, found, expected, path["reason"], action, again))
    return checks


def straggler_checks(stragglers: Record, again: str) -> list[Check]:
    """Return a check for each node that is slow or could not be checked, or one that passes.

    The slowest comes first, as it is most worth doing something about.
    """
    check = partial(Check, "stragglers", "pairs of nodes")
    gate, median, state = stragglers["gate"], stragglers["median"], stragglers["state"]
    checks = []
    for node in sorted(stragglers["nodes"], key=lambda node: node["score"] or 0.0):
        if node["state"] in ("fail", "unknown"):
            expected = "" if gate is None else f"at least {gate:.2f} GB/s with every partner"
            data = {"confidence": node["confidence"], "measurements": node["measurements"]}
            found = "no bandwidth with any partner"
            if node["score"] is not None:
                found = f"{node['score']:.0%} of the bandwidth of the others, confidence {node['confidence']:.0%}"
            if len(stragglers["nodes"]) == 2 and median is not None:
                # Their one pair has no other to compare it with.
                found, expected = f"{median:.2f} GB/s with the only partner", ""
            texts = (found, expected, node["reason"], node["action"], again)
            checks.append(check(node["state"], (node["host"],), *texts, data=data))
    # Bad pairs of which no single node can be blamed are a fault all the same.
    if state not in {each.state for each in checks}:
        pairs = counted(len(stragglers["pairs"]), "pair")
        found = "" if median is None else f"median {median:.2f} GB/s over {pairs}"
        reason, action = stragglers["reason"], f"measure all pairs: {again} -e verify_rounds=full"
        if state == "pass":
            reason = action = ""
        elif state == "skipped":
            action = next((str(node["action"]) for node in stragglers["nodes"] if node["state"] == "skipped"), "")
        checks.insert(0, check(state, found=found, reason=reason, action=action, command=again))
    figures = {"bandwidth with others": {node["host"]: node["score"] for node in stragglers["nodes"] if node["score"]}}
    figures |= {"bandwidth of pairs": {"": median}} if median else {}
    checks[0] = replace(checks[0], data={**checks[0].data, "figures": figures, "fall": FALL})
    small = stragglers.get("latency")
    checks += [latency.pair_check(small, again)] if small and not small["slow"] else []
    return checks
