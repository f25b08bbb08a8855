# SPDX-License-Identifier: Apache-2.0
"""Texts about stragglers: why a cluster does not pass, what to check, how to measure again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..base.adhoc import ansible, playbook
from ..base.findings import host_list
from .pairing import Pair
from .straggler_limits import Limits

# Why the only pair of two nodes is not checked.
ALONE = "one pair has nothing to compare it with"


def ping(host: str, inventory: str) -> str:
    """Return the command that pings a node."""
    return ansible([host], inventory, "ansible.builtin.ping")


def compare_cards(host: str, inventory: str) -> str:
    """Say what to do with a slow node."""
    command = ansible([host], inventory, "network_info", become=True)
    cards = "compare its network cards with a healthy node's (link rate, errors, PCIe width)"
    return f"leave it out (job_hosts), and {cards}: {command}"


def leave_out(host: str, inventory: str) -> str:
    """Say what to do with a node that computes wrong results."""
    command = ansible([host], inventory, "accelerator_info", become=True)
    return f"leave it out (job_hosts), test its memory, devices and network card: {command}"


def measure_again(host: str, inventory: str) -> str:
    """Say how a node is measured again."""
    again = playbook("playbooks/pair_check.yml", inventory)
    return f"measure it again with healthy partners: {again}; does it answer: {ping(host, inventory)}"


def reason(
    hosts: Sequence[str],
    stragglers: Mapping[str, Any],
    failed: Sequence[str],
    unexplained: Sequence[Pair],
    doubted: Sequence[tuple[int, int]],
    limits: Limits,
) -> str:
    """Return the result in a sentence or two; "" where all passed."""
    if not stragglers["pairs"]:
        return "no pair was measured" if len(hosts) > 1 else "one node has no partner"
    if stragglers["median"] is None:
        errors = [pair["error"] for pair in stragglers["pairs"] if pair["error"]]
        return f"no pair of nodes could be measured: {errors[-1]}" if errors else "no pair of nodes moved anything"
    parts = []
    if failed:
        verb = "are not healthy"
        if len(failed) == 1:
            verb = f"is not healthy: {next(node['reason'] for node in stragglers['nodes'] if node['host'] in failed)}"
        parts.append(f"{host_list(failed)} {verb}")
        if len(failed) >= 3 and len(failed) * 4 >= len(hosts):
            parts.append("so many may have another kind of card, or another way between them, rather than faults")
    if len(unexplained) > 1 and all(pair["wrong"] or pair["error"] for pair in stragglers["pairs"]):
        parts.append("every pair computed wrong results: no single node, but what all have in common")
    else:
        parts += [f"{a} or {b} computed a wrong result" for a, b in unexplained[:3]]
    for path in stragglers["paths"][:3]:
        a, b = path["hosts"]
        parts.append(f"between {a} and {b} only {path['relative']:.0%}, though both are healthy: the way between them")
    least = None if stragglers["expected"] is None else limits.fraction * stragglers["expected"]
    if least is not None and stragglers["median"] < least:
        parts.append(f"even the fast pairs have only {stragglers['median']:.4g} GB/s, expected at least {least:.4g}")
    undecided = {node["host"]: node["reason"] for node in stragglers["nodes"] if node["state"] == "unknown"}
    if undecided and not parts:
        reasons = set(undecided.values())
        parts.append(f"undecided: {host_list(list(undecided))}" + (f", {reasons.pop()}" if len(reasons) == 1 else ""))
    if not parts and any(node["state"] == "skipped" for node in stragglers["nodes"]):
        return ALONE
    if doubted and not parts:
        pairs = [f"{hosts[first]}-{hosts[second]}" for first, second in doubted]
        parts.append(f"to be measured again, slow though both nodes were fast elsewhere: {host_list(pairs)}")
    gate = stragglers["gate"] / stragglers["median"]
    if gate < 1 - 2 * limits.tolerance:
        parts.append(f"the measurements scatter so much that only nodes below {gate:.0%} can be told from healthy ones")
    return "; ".join(parts)
