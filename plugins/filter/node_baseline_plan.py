# SPDX-License-Identifier: Apache-2.0
"""Filter plugin node_baseline_plan: judge the nodes of a cluster together, before any of them is touched."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ansible.module_utils.trainyard.cluster.hosts import Node, Wanted, judge, parse_memlock
from ansible.module_utils.trainyard.findings.findings import Finding

DOCUMENTATION = r"""
name: node_baseline_plan
short_description: Judge the nodes of a cluster together before any of them is touched
description:
  - Takes what M(node_identity) returned on every node and finds host names held twice, a training user with other
    numbers, numbers that others hold, nodes without a usable address, and limits that cannot be granted.
options:
  _input:
    description: What M(node_identity) returned on the nodes, in inventory order.
    type: list
    elements: dict
    required: true
  user:
    description: The training user.
    type: str
    required: true
  uid:
    description: Its uid on all nodes.
    type: int
    required: true
  group:
    description: Its primary group.
    type: str
    required: true
  gid:
    description: The gid of that group on all nodes.
    type: int
    required: true
  network:
    description: Network (CIDR) of the addresses under which the nodes know each other. Empty for the inventory's.
    type: str
    default: ""
  memlock:
    description: V(unlimited) or a number of KiB.
    type: str
    default: unlimited
  nofile:
    description: Number of open files.
    type: int
    required: true
  sets_clock:
    description: Whether a time service shall run, which a container cannot have.
    type: bool
    default: false
author: trainyard
"""

EXAMPLES = r"""
- name: Judge all nodes together
  ansible.builtin.set_fact:
    judged: "{{ identities | node_baseline_plan(user='train', uid=2000, group='train', gid=2000, nofile=1048576) }}"
  run_once: true
"""

RETURN = r"""
_value:
  description:
    - C(findings) is what stops the play, for M(findings); where that is the input, it is all. C(entries) has one record
      for each node with its address and the names that /etc/hosts gives it, C(limits) by inventory name the limits that
      the node can grant (memlock in bytes, null for unlimited), C(exceptions) in words what nodes cannot be given.
  type: dict
"""


def node_baseline_plan(
    nodes: Iterable[Mapping[str, Any]],
    user: str,
    uid: int,
    group: str,
    gid: int,
    nofile: int,
    network: str = "",
    memlock: str | int = "unlimited",
    sets_clock: bool = False,
) -> dict[str, Any]:
    """Return findings, entries, limits and exceptions."""
    try:
        if network:
            ipaddress.ip_network(str(network), strict=False)
        limit = parse_memlock(str(memlock))
    except ValueError as error:
        wrong = Finding(
            check="input of node_baseline",
            found=str(error),
            expected="node_baseline_network a CIDR such as 10.0.0.0/24, node_baseline_memlock 'unlimited' or KiB",
            action="correct it",
        )
        return {"findings": [wrong.as_dict()]}
    wanted = Wanted(str(user), int(uid), str(group), int(gid), str(network), limit, int(nofile), bool(sets_clock))
    judged = judge([Node.from_dict(node) for node in nodes], wanted)
    return {
        "findings": [finding.as_dict() for finding in judged.findings],
        "entries": [{"address": entry.address, "names": list(entry.names)} for entry in judged.entries],
        "limits": judged.limits,
        "exceptions": list(judged.exceptions),
    }


class FilterModule:
    """See the module's docstring."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filter by its name."""
        return {"node_baseline_plan": node_baseline_plan}
