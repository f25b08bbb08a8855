# SPDX-License-Identifier: Apache-2.0
"""Hosts that were refused: before a start by the gate, or by a job that went on or ended without them.

The controller keeps them by host, with the reason, since when and by which job, until a launch has looked at the host
and it passes. Times are seconds since the epoch. What nodes say of it is bounded, and of their job's hosts alone: the
worst that a job's user can do is to have a host looked at again.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from ..findings.findings import Finding
from ..findings.visible import visible
from .shapes import Each, Text, Whole, misfit

Refused = dict[str, dict[str, Any]]

MOST_REASON = 400
_NAME, _TIME = Text(255), Whole(1 << 40)
_SHAPE = {
    "refused": Each({"reason": Text(MOST_REASON), "since": _TIME, "job_id": _NAME}, _NAME),
    # When who was refused before passed again: what older jobs say of these hosts is over.
    "passed": Each(_TIME, _NAME),
}


def read(kept: Any) -> dict[str, Any]:
    """Return what the controller keeps, of whatever its file holds."""
    return {"refused": {}, "passed": {}} if misfit(kept, _SHAPE) else kept


def told(
    kept: Mapping[str, Any], found: Mapping[str, Mapping[str, Any]], job_id: str, hosts: Collection[str], now: float
) -> dict[str, Any]:
    """Add who was refused: {host: {reason, since}}, as a job of these `hosts` tells it `now`.

    Who is refused already keeps the time and the job that said so first. A host that has passed since is left as it is.
    """
    refused: Refused = dict(kept["refused"])
    for host, each in found.items():
        since, before = min(max(0, int(each["since"])), int(now)), refused.get(host)
        if host not in hosts or kept["passed"].get(host, since) > since or (before and before["since"] > since):
            continue
        first = before or {"since": since, "job_id": job_id}
        refused[host] = {**first, "reason": visible(str(each["reason"]))[:MOST_REASON]}
    return {**kept, "refused": refused}


def passed(kept: Mapping[str, Any], hosts: Collection[str], now: float, inventory: Collection[str]) -> dict[str, Any]:
    """Take hosts back that passed the gate at `now`; hosts that are in no inventory any more are forgotten."""
    known = {host: at for host, at in kept["passed"].items() if host in inventory}
    back = {host: int(now) for host in kept["refused"] if host in hosts}
    refused = {host: each for host, each in kept["refused"].items() if host in inventory and host not in hosts}
    return {"refused": refused, "passed": {**known, **back}}


def by_host(answers: Mapping[str, Mapping[str, Any]], others: Collection[Finding]) -> dict[str, list[str]]:
    """Return what each host does not pass that has looked (the agent's preflight), with what `others` say of it."""
    texts = {host: [f"{each.check}: {each.found}" for each in others if each.host == host] for host in answers}
    return {host: [*answer["refused"], *texts[host]] for host, answer in answers.items() if "refused" in answer}


def since(entry: Mapping[str, Any]) -> str:
    """Say since when a host is refused: `since 2026-11-23 10:12:03 by digits-20261123-101000`."""
    return f"since {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(entry['since']))} by {entry['job_id']}"


def lines(refused: Refused) -> list[str]:
    """Say who is refused, each with the reason."""
    if not refused:
        return []
    told = [f"  {host} {since(entry)}: {entry['reason']}" for host, entry in refused.items()]
    return ["refused hosts; the next launch of a job looks at those that it would have:", *told]


def back(refused: Refused, hosts: Collection[str]) -> list[str]:
    """Say who takes part again."""
    return [
        f"{host} passes the gate and takes part again; it was refused {since(entry)}: {entry['reason']}"
        for host, entry in refused.items()
        if host in hosts
    ]


def still(finding: Finding, gate: Mapping[str, Collection[str]], again: Mapping[str, str]) -> Finding:
    """Say of a fault of the gate since when its host is refused, where it was so before."""
    host = finding.host
    if host not in again or (host in gate and f"{finding.check}: {finding.found}" not in gate[host]):
        return finding
    return replace(finding, found=f"{finding.found} (refused {again[host]})")
