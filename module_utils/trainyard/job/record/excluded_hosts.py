# SPDX-License-Identifier: Apache-2.0
"""Hosts that were refused: before a start by the gate, or by a job that went on or ended without them.

The controller keeps them by host, with the reason, since when, by which job and with which devices that would have had
it, until a launch has looked at the host, at these devices too, and it passes. Times are seconds since the epoch. What
nodes say of it is bounded, and of their job's hosts alone: the worst that a job's user can do is to have a host looked
at again.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from ...findings.findings import Finding
from ...findings.visible import visible
from ..run.shapes import Each, Text, Whole, misfit

Refused = dict[str, dict[str, Any]]
# What a job has, or would have, on each of its hosts.
Devices = Mapping[str, Collection[int]]

MOST_REASON = 400
_NAME, _TIME = Text(255), Whole(1 << 40)
_ENTRY = {"reason": Text(MOST_REASON), "since": _TIME, "job_id": _NAME, "?devices": [Whole(1 << 16)]}
_SHAPE = {
    "refused": Each(_ENTRY, _NAME),
    # When who was refused before passed again: what older jobs say of these hosts is over.
    "passed": Each(_TIME, _NAME),
}


class Look(NamedTuple):
    """What a host does not pass, None where it has not gone through all of the gate; with which devices it looked."""

    texts: list[str] | None
    devices: Collection[int] = ()


Gate = dict[str, Look]


def read(kept: Any) -> dict[str, Any]:
    """Return what the controller keeps, of whatever its file holds."""
    return {"refused": {}, "passed": {}} if misfit(kept, _SHAPE) else kept


def told(
    kept: Mapping[str, Any], found: Mapping[str, Mapping[str, Any]], job_id: str, devices: Devices, now: float
) -> dict[str, Any]:
    """Add who was refused: {host: {reason, since}}, as a job of the hosts of `devices` tells it `now`.

    Who is refused already keeps the time and the job that said so first. A host that has passed since is left as it is.
    """
    refused: Refused = dict(kept["refused"])
    for host, each in found.items():
        since, before = min(max(0, int(each["since"])), int(now)), refused.get(host)
        if host not in devices or kept["passed"].get(host, since) > since or (before and before["since"] > since):
            continue
        first = before or {"since": since, "job_id": job_id}
        reason, had = visible(str(each["reason"]))[:MOST_REASON], {*first.get("devices", ()), *devices[host]}
        refused[host] = {**first, "reason": reason, "devices": sorted(had)}
    return {**kept, "refused": refused}


def back(refused: Refused, devices: Devices) -> list[str]:
    """Return who takes part again of the hosts of `devices`, which have passed the gate with these."""
    return [
        host
        for host, entry in refused.items()
        if host in devices and set(entry.get("devices", ())).issubset(devices[host])
    ]


def passed(kept: Mapping[str, Any], hosts: Collection[str], now: float, inventory: Collection[str]) -> dict[str, Any]:
    """Take hosts `back` that passed the gate at `now`; hosts that are in no inventory any more are forgotten."""
    known = {host: at for host, at in kept["passed"].items() if host in inventory}
    again = {host: int(now) for host in kept["refused"] if host in hosts}
    refused = {host: each for host, each in kept["refused"].items() if host in inventory and host not in hosts}
    return {"refused": refused, "passed": {**known, **again}}


def by_host(answers: Mapping[str, Mapping[str, Any]], others: Collection[Finding], devices: Devices) -> Gate:
    """Return what each host does not pass that has looked (the agent's preflight), with what `others` say of it."""
    texts = {host: [f"{each.check}: {each.found}" for each in others if each.host == host] for host in answers}
    looked = {host: answer["refused"] for host, answer in answers.items() if "refused" in answer}
    return {
        host: Look([*(own or ()), *texts[host]] if texts[host] else own, devices[host]) for host, own in looked.items()
    }


def since(entry: Mapping[str, Any]) -> str:
    """Say since when a host is refused: `since 2026-11-23 10:12:03 by digits-20261123-101000`."""
    return f"since {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(entry['since']))} by {entry['job_id']}"


def lines(refused: Refused) -> list[str]:
    """Say who is refused, each with the reason."""
    if not refused:
        return []
    told = [f"  {host} {since(entry)}: {entry['reason']}" for host, entry in refused.items()]
    return ["refused hosts; the next launch of a job looks at those that it would have:", *told]


def back_lines(refused: Refused, hosts: Collection[str]) -> list[str]:
    """Say who takes part again."""
    return [
        f"{host} passes the gate and takes part again; it was refused {since(refused[host])}: {refused[host]['reason']}"
        for host in hosts
    ]


def still(finding: Finding, gate: Gate, again: Mapping[str, str]) -> Finding:
    """Say of a fault of the gate since when its host is refused, where it was so before."""
    host = finding.host
    if host not in again or (host in gate and f"{finding.check}: {finding.found}" not in (gate[host].texts or ())):
        return finding
    return replace(finding, found=f"{finding.found} (refused {again[host]})")
