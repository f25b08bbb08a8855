# SPDX-License-Identifier: Apache-2.0
"""Texts about stragglers: why a cluster does not pass, what to check, how to measure again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..findings.adhoc import ansible, playbook
from ..findings.findings import host_list
from .pairing import Pair
from .straggler_limits import Limits

# Why the only pair of two nodes is not checked.
ALONE = "one pair has nothing to compare it with"


def partners(count: int) -> str:
    """Count healthy partners."""
    return f"{count} healthy partner{'s' if count != 1 else ''}"


def ping(host: str, inventory: str) -> str:
    """Return the command that asks a node for an answer."""
    return ansible([host], inventory, "ansible.builtin.ping")


def look_at(host: str, inventory: str) -> str:
    """Say where to look on a slow node."""
    command = ansible([host], inventory, "network_info", become=True)
    return (
        "leave it out (job_hosts), and compare its network cards with a healthy node's (link rate, errors, PCIe "
        f"width): {command}"
    )


def leave_out(host: str, inventory: str) -> str:
    """Say what to do with a node that computes wrong results."""
    command = ansible([host], inventory, "accelerator_info", become=True)
    return f"leave it out (job_hosts), test its memory, devices and network card: {command}"


def measure_again(host: str, inventory: str) -> str:
    """Say how a node is measured again."""
    return (
        f"measure it again with healthy partners: {playbook('playbooks/pair_check.yml', inventory)}; does it answer: "
        f"{ping(host, inventory)}"
    )


def reason(
    hosts: Sequence[str],
    stragglers: Mapping[str, Any],
    failed: Sequence[str],
    unexplained: Sequence[Pair],
    doubted: Sequence[tuple[int, int]],
    limits: Limits,
) -> str:
    """Say in a sentence or two what came of it; "" where all passed."""
    if not stragglers["pairs"]:
        return "no pair was measured" if len(hosts) > 1 else "one node has nobody to be paired with"
    if stragglers["median"] is None:
        errors = [pair["error"] for pair in stragglers["pairs"] if pair["error"]]
        return f"no pair of nodes could be measured: {errors[-1]}" if errors else "no pair of nodes moved anything"
    said = []
    if failed:
        verb = "is" if len(failed) == 1 else "are"
        by_host = {node["host"]: node for node in stragglers["nodes"]}
        why = f": {by_host[failed[0]]['reason']}" if len(failed) == 1 else ""
        said.append(f"{host_list(failed)} {verb} not healthy{why}")
        if len(failed) >= 3 and len(failed) * 4 >= len(hosts):
            said.append("so many may have another kind of card, or another way between them, rather than faults")
    if len(unexplained) > 1 and all(pair["wrong"] or pair["error"] for pair in stragglers["pairs"]):
        said.append("every pair computed wrong results: no single node, but what all have in common")
    else:
        said += [f"{a} or {b} computed a wrong result" for a, b in unexplained[:3]]
    for path in stragglers["paths"][:3]:
        a, b = path["hosts"]
        said.append(f"between {a} and {b} only {path['relative']:.0%}, though both are healthy: the way between them")
    least = None if stragglers["expected"] is None else limits.fraction * stragglers["expected"]
    if least is not None and stragglers["median"] < least:
        said.append(f"even the fast pairs have only {stragglers['median']:.4g} GB/s, expected at least {least:.4g}")
    undecided = [node["host"] for node in stragglers["nodes"] if node["state"] == "unknown"]
    if undecided and not said:
        only = {node["reason"] for node in stragglers["nodes"] if node["state"] == "unknown"}
        said.append(f"undecided: {host_list(undecided)}" + (f", {only.pop()}" if len(only) == 1 else ""))
    if not said and any(node["state"] == "skipped" for node in stragglers["nodes"]):
        return ALONE
    if doubted and not said:
        pairs = [f"{hosts[first]}-{hosts[second]}" for first, second in doubted]
        said.append(f"to be measured again, slow though both nodes were fast elsewhere: {host_list(pairs)}")
    gate = stragglers["gate"] / stragglers["median"]
    if gate < 1 - 2 * limits.tolerance:
        said.append(f"the measurements scatter so much that only nodes below {gate:.0%} can be told from healthy ones")
    return "; ".join(said)
