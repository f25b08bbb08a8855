# SPDX-License-Identifier: Apache-2.0
"""Hosts that are excluded: by the health check before a start, or by a job that continued or ended without them.

The controller records each with the reason, the time, the job and the devices that the job would have used, until a
launch has checked the host with these devices and it passes. Times are seconds since the epoch. Nodes' reports are
bounded and count for the hosts of their own job alone: at worst, a job's user has a host checked again.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from ...base.findings import Finding
from ...base.shapes import MAX_TIME, Each, Shape, Text, Whole
from ...base.visible import visible

# Excluded hosts by name.
Excluded = dict[str, dict[str, Any]]
# The devices that a job has, or would have, on each of its hosts.
Devices = Mapping[str, Collection[int]]

MAX_REASON = 400
_NAME, _TIME = Text(255), Whole(MAX_TIME)
_ENTRY = {"reason": Text(MAX_REASON), "since": _TIME, "job_id": _NAME, "?devices": [Whole(1 << 16)]}
SHAPE: Shape = {
    "excluded": Each(_ENTRY, _NAME),
    # When a host that was excluded passed again: reports of older jobs no longer count for it.
    "passed": Each(_TIME, _NAME),
}


class HealthCheck(NamedTuple):
    """The problems of one host, None where it skipped some checks; and the devices that it checked."""

    problems: list[str] | None
    devices: Collection[int] = ()


HealthChecks = dict[str, HealthCheck]


def empty() -> dict[str, Any]:
    """Return a record without any host."""
    return {"excluded": {}, "passed": {}}


def add(
    record: Mapping[str, Any], found: Mapping[str, Mapping[str, Any]], job_id: str, devices: Devices, now: float
) -> dict[str, Any]:
    """Add {host: {reason, since}} to the record, from a job whose hosts have `devices`.

    A host that is excluded already keeps its first time and job. A host that has passed since then is not added.
    """
    excluded: Excluded = dict(record["excluded"])
    for host, each in found.items():
        since, before = min(max(0, int(each["since"])), int(now)), excluded.get(host)
        if host not in devices or record["passed"].get(host, since) > since or (before and before["since"] > since):
            continue
        first = before or {"since": since, "job_id": job_id}
        reason, had = visible(str(each["reason"]))[:MAX_REASON], {*first.get("devices", ()), *devices[host]}
        excluded[host] = {**first, "reason": reason, "devices": sorted(had)}
    return {**record, "excluded": excluded}


def healthy_again(excluded: Excluded, devices: Devices) -> list[str]:
    """Return the excluded hosts that passed the health check with all devices for which they were excluded."""
    return [
        host
        for host, entry in excluded.items()
        if host in devices and set(entry.get("devices", ())).issubset(devices[host])
    ]


def readmit(
    record: Mapping[str, Any], hosts: Collection[str], now: float, inventory: Collection[str]
) -> dict[str, Any]:
    """Take `hosts` off the list, which passed the health check at `now`, and all hosts that left the inventory."""
    passed = {host: at for host, at in record["passed"].items() if host in inventory}
    passed |= {host: int(now) for host in record["excluded"] if host in hosts}
    excluded = {host: each for host, each in record["excluded"].items() if host in inventory and host not in hosts}
    return {"excluded": excluded, "passed": passed}


def health_checks(
    answers: Mapping[str, Mapping[str, Any]], others: Collection[Finding], devices: Devices
) -> HealthChecks:
    """Return the health check of each host that made one (the agent's preflight), with the findings of `others`."""
    texts = {host: [f"{each.check}: {each.found}" for each in others if each.host == host] for host in answers}
    own = {host: answer["unhealthy"] for host, answer in answers.items() if "unhealthy" in answer}
    return {
        host: HealthCheck([*(found or ()), *texts[host]] if texts[host] else found, devices[host])
        for host, found in own.items()
    }


def since(entry: Mapping[str, Any]) -> str:
    """Return since when a host is excluded: `since 2026-11-23 10:12:03 by digits-20261123-101000`."""
    return f"since {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(entry['since']))} by {entry['job_id']}"


def lines(excluded: Excluded) -> list[str]:
    """Return lines that list the excluded hosts, each with the reason."""
    if not excluded:
        return []
    hosts = [f"  {host} {since(entry)}: {entry['reason']}" for host, entry in excluded.items()]
    return ["excluded hosts, which the next launch that needs them checks again:", *hosts]


def readmitted_lines(excluded: Excluded, hosts: Collection[str]) -> list[str]:
    """Return a line for each host that takes part again."""
    return [
        f"{host} passes the health check and takes part again; it was excluded {since(excluded[host])}: "
        f"{excluded[host]['reason']}"
        for host in hosts
    ]


def mark_repeated(finding: Finding, checks: HealthChecks, again: Mapping[str, str]) -> Finding:
    """Add to a finding of the health check since when its host is excluded, if it was before."""
    host = finding.host
    if host not in again or (
        host in checks and f"{finding.check}: {finding.found}" not in (checks[host].problems or ())
    ):
        return finding
    return replace(finding, found=f"{finding.found} (excluded {again[host]})")
