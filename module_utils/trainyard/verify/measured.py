# SPDX-License-Identifier: Apache-2.0
"""Checks of the phases bandwidth and stragglers, from what was measured. Bandwidths in GB/s (1e9 bytes a second).

A benchmark is the record that verify/benchmark.judge() returns; stragglers are what stragglers.judge() returns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..findings.checks import Check
from ..findings.findings import counted

Record = Mapping[str, Any]


def size_text(size: int) -> str:
    """Return 8 MiB for 8388608, with the largest unit that divides it."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor and size % factor == 0:
            return f"{size // factor} {unit}"
    return f"{size} bytes"


def benchmark_checks(record: Record, again: str) -> list[Check]:
    """Check one benchmark: its bandwidth, and the path that the bytes took where that could be seen.

    A bandwidth that was kept as the site's `baseline` is by that the expected one.
    """
    kept = record["state"] == "skipped" and bool(record.get("baseline"))
    state = "pass" if kept else record["state"]
    where = "" if len(record["hosts"]) != 1 else f" inside {record['hosts'][0]}"
    name = f"{record['collective'] or 'benchmark'}{' over ' + record['backend'] if record['backend'] else ''}{where}"
    found = "nothing was measured"
    if record["busbw_largest"] is not None:
        largest = max(size["bytes"] for size in record["sizes"])
        speed = f"busbw {record['busbw_largest']:.2f} GB/s at {size_text(largest)}"
        found = f"{speed} over {counted(record['ranks'], 'rank')}"
        if record.get("baseline"):
            found += f", kept as the baseline in {record['baseline']}"
    wanted = record.get("expected")
    action = {
        "pass": "",
        "fail": "see the phase stragglers for the node, and the log of the run",
        "unknown": "read the reason, and the log of the run",
        "skipped": "give the expected value (verify_busbw), or keep this as the baseline (verify_save_baseline=true)",
    }.get(state, "")
    checks = [
        Check(
            phase="bandwidth",
            name=name,
            state=state,
            hosts=tuple(record["hosts"]) if where else (),
            found=found,
            expected=(
                f"at least {wanted['gate']:.2f} GB/s, {wanted['fraction']:.0%} of {wanted['busbw']:.2f}"
                if wanted
                else "the bandwidth that is kept as the baseline"
                if kept
                else ""
            ),
            reason="" if kept else record["reason"],
            action=action,
            command=again,
            source=wanted["source"] if wanted else "kept by this run" if kept else "",
            data={"job_id": record.get("job_id", ""), "busbw_largest": record["busbw_largest"]},
        )
    ]
    path = record.get("path")
    # A path that is well does not make a bandwidth that nobody can check one that was checked.
    if path and not (state == "skipped" and path["state"] == "pass"):
        checks.append(
            Check(
                phase="bandwidth",
                name=f"path of {name}",
                state=path["state"],
                hosts=tuple(record["hosts"]) if where else (),
                found=", ".join(path["devices"]) or "no device that is known to have carried the bytes",
                expected="the network that is meant for it",
                reason=path["reason"],
                action="" if path["state"] == "pass" else "read NCCL's lines in the log (NCCL_DEBUG=INFO)",
                command=again,
            )
        )
    return checks


def straggler_checks(stragglers: Record, again: str) -> list[Check]:
    """Turn stragglers into checks: one for each node that is slow or could not be checked, or one that passes.

    The slowest comes first, as the report says first what is most worth doing.
    """
    checks = [
        Check(
            phase="stragglers",
            name="pairs of nodes",
            state=node["state"],
            hosts=(node["host"],),
            found=_relative(node),
            expected=(
                f"at least {stragglers['gate']:.2f} GB/s with every partner" if stragglers["gate"] is not None else ""
            ),
            reason=node["reason"],
            action=node["action"],
            command=again,
            data={"confidence": node["confidence"], "measurements": node["measurements"]},
        )
        for node in sorted(stragglers["nodes"], key=lambda node: node["score"] or 0.0)
        if node["state"] in ("fail", "unknown")
    ]
    # Bad pairs of which no single node can be blamed are a fault all the same.
    if not checks or stragglers["state"] not in {check.state for check in checks}:
        checks.insert(
            0,
            Check(
                phase="stragglers",
                name="pairs of nodes",
                state=stragglers["state"],
                found=(
                    f"median {stragglers['median']:.2f} GB/s over {counted(len(stragglers['pairs']), 'pair')}"
                    if stragglers["median"] is not None
                    else ""
                ),
                reason="" if stragglers["state"] == "pass" else stragglers["reason"],
                action=_next(stragglers, again),
                command=again,
            ),
        )
    return checks


def _next(stragglers: Record, again: str) -> str:
    if stragglers["state"] == "skipped":
        return next((str(node["action"]) for node in stragglers["nodes"] if node["state"] == "skipped"), "")
    return "" if stragglers["state"] == "pass" else f"measure all pairs: {again} -e verify_rounds=full"


def _relative(node: Record) -> str:
    if node["score"] is None:
        return "no bandwidth with any partner"
    return f"{node['score']:.0%} of the bandwidth of the others, confidence {node['confidence']:.0%}"
