#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin fan_out."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: fan_out
short_description: Query many hosts at once without changing them
description:
  - Visits all hosts at once from one process of the controller, over the inventory's connection and become plugins. A
    host without an answer delays no other, and has the result of a failed task as its answer; one that C(--limit)
    excludes has an empty answer.
options:
  question: {description: Name in C(QUESTIONS) of module_utils/trainyard_node/agent.py., type: str, required: true}
  hosts: {description: Inventory names., type: list, elements: str, required: true}
  shared: {description: "Arguments of the function, the same for all hosts.", type: dict, default: {}}
  own: {description: "Arguments that differ, by host.", type: dict, default: {}}
  arguments: {description: Variable of each host with arguments of the function; O(own) wins., type: str}
  required: {description: Whether the task fails if a host gives no answer., type: bool, default: false}
  clock: {description: "Whether to add C(clock), with its C(offset_s) and C(margin_s).", type: bool, default: false}
  named: {description: The argument that takes the host's own inventory name., type: str}
  limit_s: {description: Seconds that a node may take for its answer., type: float, default: 120}
extends_documentation_fragment: read_only
"""

EXAMPLES = r"""
- name: Read the traffic of RDMA ports
  fan_out:
    question: rdma_traffic
    hosts: "{{ groups['rdma'] }}"
    named: host
  register: traffic
"""

RETURN = r"""
answers: {description: "The answer of each host, or why there is none.", returned: always, type: dict}
"""
