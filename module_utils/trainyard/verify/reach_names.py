# SPDX-License-Identifier: Apache-2.0
"""Names and addresses as the nodes see them, and as the inventory says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..findings.adhoc import shell
from ..findings.checks import Check
from ..findings.findings import host_list
from .reporting_hosts import NOBODY, answers, grouped


def judge_names(rows: Mapping[str, Mapping[str, Any]], inventory: str = "") -> list[Check]:
    """Judge what names each node resolves the others' host names to."""
    good, bad = answers(rows, "resolved")
    finders: dict[tuple[str, str, str], list[str]] = {}
    for host, result in good.items():
        for wrong in result["names"]:
            finders.setdefault((wrong["name"], wrong["found"], wrong["expected"]), []).append(host)
    # Many names that lead to the same wrong place on the same nodes are one fault.
    faults: dict[tuple[str, tuple[str, ...]], list[tuple[str, str]]] = {}
    for (name, found, expected), hosts in finders.items():
        faults.setdefault((found, tuple(hosts)), []).append((name, expected))
    checks = []
    for (found, finding), names in faults.items():
        first, expected = names[0]
        leads = "leads" if len(names) == 1 else "lead"
        checks.append(
            Check(
                phase="reach",
                name="names",
                state="fail",
                hosts=finding,
                found=f"{host_list([name for name, _ in names])} {leads} to {found} on {host_list(finding)}",
                expected=expected if len(names) == 1 else "names that lead to an address of their node",
                reason=f"another machine, or none, is found under that name on {host_list(finding)}",
                action="run site.yml (role node_baseline), or correct /etc/hosts or DNS",
                command=shell(finding, inventory, f"getent ahosts {first}"),
            )
        )
    if bad:
        checks.append(
            Check(
                phase="reach",
                name="names",
                state="unknown",
                hosts=tuple(bad),
                found="not asked",
                expected="names that lead to the nodes",
                reason="the node could not be asked",
                action="see the check job network",
            )
        )
    if not checks:
        number = sum(int(result["resolved"]) for result in good.values())
        checks.append(
            Check(
                phase="reach",
                name="names",
                state="pass" if number else "not_asked" if good else "skipped",
                found=f"{number} names resolve" if number else "",
                reason="" if number else "verify_names is false" if good else NOBODY,
            )
        )
    return checks


def judge_addresses(networks: Mapping[str, Mapping[str, Any]], network: str) -> list[Check]:
    """Judge whether every node has one address on the job network, and each one its own."""
    if not networks:
        return [Check(phase="reach", name="job address", state="skipped", reason=NOBODY)]
    checks = []
    missing = {host: way for host, way in networks.items() if not way["address"]}
    for (found, action), hosts in grouped(
        (host, (way["problem"], way["action"])) for host, way in missing.items()
    ).items():
        checks.append(
            Check(
                phase="reach",
                name="job address",
                state="fail",
                hosts=tuple(hosts),
                found=found,
                expected=f"one address on {network or 'the job network'}",
                reason=f"{host_list(hosts)} {'has' if len(hosts) == 1 else 'have'} no way on the job network",
                action=action,
            )
        )
    holders = grouped((host, (str(way["address"]), "")) for host, way in networks.items() if way["address"])
    for (address, _), hosts in holders.items():
        if len(hosts) > 1:
            checks.append(
                Check(
                    phase="reach",
                    name="job address",
                    state="fail",
                    hosts=tuple(hosts),
                    found=f"{address} on {host_list(hosts)}",
                    expected="a different address for every node",
                    reason="nodes with one address hide each other",
                    action="correct the addresses, or the network (job_network)",
                )
            )
    if not checks:
        checks.append(
            Check(
                phase="reach",
                name="job address",
                state="pass",
                found="1 address" if len(networks) == 1 else f"{len(networks)} different addresses",
            )
        )
    return checks
