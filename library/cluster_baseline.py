#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Ansible module cluster_baseline: judge the nodes of a cluster together, once, on the controller. Read-only."""
from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_baseline
short_description: Judge the nodes of a cluster together before any of them is touched
description:
  - Takes what M(node_identity) returned on every node and finds host names held twice, a training user with other
    numbers, numbers that others hold, nodes without a usable address, and limits that cannot be granted.
  - Fails once, with all findings of all nodes. Otherwise returns the names for /etc/hosts and each node's limits.
  - Runs on the controller, once for all nodes.
options:
  nodes:
    description:
      - The nodes in inventory order. Each is the result of M(node_identity) with C(name) (inventory name), C(connect)
        (address or name by which the inventory reaches it) and C(container) (kind of container, empty for none) added.
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
extends_documentation_fragment: read_only
author: trainyard
"""

EXAMPLES = r"""
- name: Judge all nodes together
  cluster_baseline:
    nodes: "{{ node_records }}"
    user: train
    uid: 2000
    group: train
    gid: 2000
    nofile: 1048576
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
entries:
  description: One record for each node with its address and the names that /etc/hosts gives it.
  returned: success
  type: list
  elements: dict
  sample: [{address: 10.77.0.2, names: [n1]}]
limits:
  description: By inventory name, the limits that the node can grant, memlock in bytes, null for unlimited.
  returned: success
  type: dict
  sample: {n1: {memlock: null, nofile: 1048576}}
exceptions:
  description: What a node cannot be given, in words, with the nodes' names. The action plugin prints them.
  returned: success
  type: list
  elements: str
findings:
  description: The findings, when there are any.
  returned: failure
  type: list
  elements: dict
"""

import ipaddress
from dataclasses import asdict

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard.findings import render
from ansible.module_utils.trainyard.hosts import Node, Wanted, judge, parse_memlock


def main() -> None:
    """Judge, and fail with all findings at once."""
    module = AnsibleModule(
        argument_spec={
            "nodes": {"type": "list", "elements": "dict", "required": True},
            "user": {"type": "str", "required": True},
            "uid": {"type": "int", "required": True},
            "group": {"type": "str", "required": True},
            "gid": {"type": "int", "required": True},
            "network": {"type": "str", "default": ""},
            "memlock": {"type": "str", "default": "unlimited"},
            "nofile": {"type": "int", "required": True},
            "sets_clock": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    wanted = {name: value for name, value in module.params.items() if name != "nodes"}
    try:
        if wanted["network"]:
            ipaddress.ip_network(wanted["network"], strict=False)
        memlock = parse_memlock(wanted["memlock"])
    except ValueError as error:
        module.fail_json(msg=f"node_baseline cannot use its input: {error}. Expected a CIDR such as 10.0.0.0/24 for "
                             "node_baseline_network, 'unlimited' or KiB for node_baseline_memlock.")
    nodes = [Node.from_dict(record) for record in module.params["nodes"]]
    verdict = judge(nodes, Wanted(**{**wanted, "memlock": memlock}))
    if verdict.findings:
        module.fail_json(
            msg=render(verdict.findings, "The nodes cannot be one cluster: {count} {findings}. Nothing was changed."),
            findings=[finding.as_dict() for finding in verdict.findings],
        )
    module.exit_json(
        changed=False,
        entries=[asdict(entry) for entry in verdict.entries],
        limits=verdict.limits,
        exceptions=list(verdict.exceptions),
    )


if __name__ == "__main__":
    main()
