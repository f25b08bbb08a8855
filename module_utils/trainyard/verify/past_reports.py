# SPDX-License-Identifier: Apache-2.0
"""What earlier verifications say: which nodes fail again and again, and which bandwidth is usual. Pure.

Reports are those of report.json (report.SHAPE). Times are seconds since the epoch, bandwidths GB/s.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..base.checks import MADE
from ..base.findings import counted, grouped

Report = Mapping[str, Any]

# A node that failed so many times is a repeat offender.
OFTEN = 3
# A bandwidth is usual when this number of verifications has measured it.
USUAL = 3
_SOUND = ("pass", "skipped")
_UNITS = ((86400, "day"), (3600, "hour"), (60, "minute"))


def failed_hosts(phase: Report, hosts: Sequence[str]) -> set[str]:
    """Return the hosts that the failed checks of a phase name.

    A check that names more than half of the `hosts` says something about the cluster, and nothing about one of them.
    """
    failed = [check["hosts"] for check in phase["checks"] if check["state"] == "fail"]
    return {host for named in failed if len(named) == 1 or 2 * len(named) <= len(hosts) for host in named}


def offenders(reports: Iterable[Report]) -> list[dict[str, Any]]:
    """Return the nodes that failed at least OFTEN times, the most frequent first: `host`, `failures`, `mean_s`.

    `reports` are those of one cluster. A failure begins where a phase names a node that the same phase did not name
    when it last ran: so a fault that nobody repaired counts once. `mean_s` is the mean time between two failures.
    """
    began: dict[str, list[float]] = {}
    failing: dict[str, set[str]] = {}
    for report in sorted(reports, key=lambda report: float(report["started"])):
        fresh: set[str] = set()
        for phase in report["phases"]:
            if not any(check["state"] in MADE for check in phase["checks"]):
                continue
            # --limit leaves out nodes, of which nothing is learnt.
            before = failing.get(phase["name"], set())
            named = failed_hosts(phase, report["hosts"])
            fresh |= named - before
            failing[phase["name"]] = named | (before - set(report["hosts"]))
        for host in sorted(fresh):
            began.setdefault(host, []).append(float(report["started"]))
    often = [
        {"host": host, "failures": len(times), "mean_s": round((times[-1] - times[0]) / (len(times) - 1))}
        for host, times in began.items()
        if len(times) >= OFTEN
    ]
    return sorted(often, key=lambda each: (-each["failures"], each["mean_s"], each["host"]))


def offender_text(offender: Mapping[str, Any]) -> str:
    """Say how often a node failed: `n2 failed 4 times, 2 days apart on average`."""
    mean = offender["mean_s"]
    size, unit = next((each for each in _UNITS if mean >= each[0]), (1, "second"))
    apart = counted(round(mean / size), unit)
    return f"{offender['host']} failed {counted(offender['failures'], 'time')}, {apart} apart on average"


def usual(reports: Iterable[Report]) -> dict[str, dict[str, Any]]:
    """Return the entries of a baseline (bandwidth.py) from what at least USUAL verifications measured.

    `reports` may be those of several clusters, as a benchmark's `key` names its hardware. The usual value is the median
    over all verifications, and of a verification that over its nodes; the newest message size counts.
    """
    measured = grouped(
        (record["key"], (report, record))
        for report in sorted(reports, key=lambda report: (float(report["started"]), report["id"]))
        for record in report["benchmarks"]
        if record.get("key") and record.get("state") in _SOUND and record.get("busbw_largest")
    )
    entries = {}
    for key, records in measured.items():
        newest, last = records[-1]
        size = _size(last)
        busbw = grouped((report["id"], record["busbw_largest"]) for report, record in records if _size(record) == size)
        if len(busbw) < USUAL:
            continue
        small = [record["latency"] for _, record in records if record.get("latency")]
        same = (last.get("latency") or {}).get("bytes")
        times = [each["us"] for each in small if each["us"] > 0 and each["bytes"] == same]
        entries[key] = {
            "busbw": round(statistics.median(map(statistics.median, busbw.values())), 3),
            "bytes": size,
            "saved": newest["id"],
            "run": f"the median of {counted(len(busbw), 'verification')}",
        }
        if times:
            entries[key] |= {"latency_us": statistics.median(times), "latency_bytes": same}
    return entries


def _size(record: Report) -> int:
    return max((int(size["bytes"]) for size in record["sizes"]), default=0)
