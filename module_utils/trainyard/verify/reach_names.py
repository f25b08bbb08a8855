# SPDX-License-Identifier: Apache-2.0
"""Compare names and addresses as the nodes see them with the inventory."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from ..base.adhoc import shell
from ..base.checks import Check
from ..base.findings import grouped, host_list
from .reporting_hosts import NOBODY, answers


def check_names(rows: Mapping[str, Mapping[str, Any]], inventory: str = "") -> list[Check]:
    """Check to which addresses each node resolves the others' host names."""
    check = partial(Check, "reach", "names")
    good, bad = answers(rows, "resolved")
    finders = grouped(
        ((wrong["name"], wrong["found"], wrong["expected"]), host)
        for host, result in good.items()
        for wrong in result["names"]
    )
    # Many names that lead to the same wrong address on the same nodes are one problem. Two nodes may have one name.
    problems = grouped(
        ((found, tuple(dict.fromkeys(hosts))), (name, expected)) for (name, found, expected), hosts in finders.items()
    )
    checks = []
    for (found, on), names in problems.items():
        first, expected = names[0]
        leads = "leads" if len(names) == 1 else "lead"
        wrong = f"{host_list([name for name, _ in names])} {leads} to {found} on {host_list(on)}"
        expected = expected if len(names) == 1 else "names that lead to an address of their node"
        reason = "another machine, or none, is found under that name"
        action = "run site.yml (role node_baseline), or correct /etc/hosts or DNS"
        command = shell(on, inventory, f"getent ahosts {first}")
        checks.append(check("fail", on, wrong, expected, reason, action, command))
    if bad:
        reason, action = "the nodes did not test it", "see the check job network"
        checks.append(check("unknown", tuple(bad), "no answer", "names that lead to the nodes", reason, action))
    if checks:
        return checks
    number = sum(int(result["resolved"]) for result in good.values())
    if number:
        return [check("pass", found=f"{number} names resolve")]
    return [check("not_asked", reason="verify_names is false") if good else check("skipped", reason=NOBODY)]


def check_addresses(networks: Mapping[str, Mapping[str, Any]], network: str) -> list[Check]:
    """Check that every node has one address on the job network, and no two nodes have the same."""
    check = partial(Check, "reach", "job address")
    if not networks:
        return [check("skipped", reason=NOBODY)]
    missing = grouped(((way["problem"], way["action"]), host) for host, way in networks.items() if not way["address"])
    expected, reason = f"one address on {network or 'the job network'}", "no address on the job network"
    checks = [
        check("fail", tuple(hosts), found, expected, reason, action) for (found, action), hosts in missing.items()
    ]
    holders = grouped((str(way["address"]), host) for host, way in networks.items() if way["address"])
    expected, reason = "a different address for every node", "nodes with one address hide each other"
    action = "correct the addresses, or the network (job_network)"
    checks += [
        check("fail", tuple(hosts), f"{address} on {host_list(hosts)}", expected, reason, action)
        for address, hosts in holders.items()
        if len(hosts) > 1
    ]
    found = "1 address" if len(networks) == 1 else f"{len(networks)} different addresses"
    return checks or [check("pass", found=found)]
