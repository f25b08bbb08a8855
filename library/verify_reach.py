#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin verify_reach."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: verify_reach
short_description: Check that the nodes reach each other
description:
  - Every node listens on two TCP ports of its address on the job network, one outside the ephemeral range. Every node
    connects to the others, reads enough for packets of the largest size, resolves their names, and logs in by ssh. A
    listener ends after O(life_s) in any case.
options:
  results: {description: C(answers) of M(verify_read)., type: dict, required: true}
  peers: {description: "V(all), or the number of others to which each node connects.", type: str, required: true}
  names: {description: Whether to resolve names., type: bool, required: true}
  ssh: {description: Whether to log in by ssh., type: bool, required: true}
  ssh_peers: {description: "V(all), or the number of others to which each node logs in.", type: str, required: true}
  ssh_parallel: {description: Concurrent logins of one node., type: int, required: true}
  addresses:
    description: Addresses of the inventory; ssh tries them besides names.
    type: list
    elements: str
    required: true
  user: {description: "The training user, who logs in.", type: str, required: true}
  network: {description: "The job network, for the messages.", type: str, required: true}
  timeout_s: {description: Seconds that one connection or login may take., type: int, required: true}
  life_s: {description: Seconds after which a listener ends., type: int, required: true}
  limit_s: {description: Seconds that any one step may take on a node., type: float, required: true}
  inventory: {description: Inventory options for the commands in the checks., type: str, required: true}
extends_documentation_fragment: read_only
seealso:
  - module: ssh_reach
"""

EXAMPLES = r"""
- name: Check all connections
  verify_reach:
    results: "{{ facts.answers }}"
    peers: all
    names: true
    ssh: true
    ssh_peers: "8"
    ssh_parallel: 8
    addresses: [10.0.0.1, 10.0.0.2]
    user: train
    network: ""
    timeout_s: 10
    life_s: 300
    limit_s: 240
    inventory: -i inventories/mine.yml
"""

RETURN = r"""
checks: {description: Records of trainyard/findings/checks.py., returned: always, type: list, elements: dict}
usable: {description: Hosts that reach each other over the job network., returned: always, type: list, elements: str}
nodes:
  description: Each host with C(address) and C(facts), for the report.
  returned: always
  type: list
  elements: dict
"""
