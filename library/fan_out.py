#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin fan_out."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: fan_out
short_description: Ask many hosts one question that changes nothing there
description:
  - Visits all hosts from one process of the controller, over the connection and become plugins that the inventory names
    for each, as many at once as C(forks). The agent of the project answers; a host that lacks it is sent it.
  - A host that gives no answer in time, or none that can be read, delays no other, and is among the answers with what
    a task's result says of it. One that C(--limit) leaves out has an empty answer.
options:
  question:
    description: Name of a function of C(QUESTIONS) in module_utils/trainyard_node/agent.py.
    type: str
    required: true
  hosts:
    description: Whom to ask, inventory names.
    type: list
    elements: str
    required: true
  shared:
    description: Arguments of the function, the same for all.
    type: dict
    default: {}
  own:
    description: Arguments that differ, by host.
    type: dict
    default: {}
  arguments:
    description: >-
      Name of a variable with arguments of the function, read for each host as a task that runs there would read it;
      O(own) wins.
    type: str
  required:
    description: Whether the task fails, with all reasons, where a host gives no answer.
    type: bool
    default: false
  clock:
    description: >-
      Whether to read each host's clock, too: its answer then has C(clock) with C(offset_s) from the controller's and
      C(margin_s), half of the round trip.
    type: bool
    default: false
  named:
    description: The argument that takes the host's own inventory name.
    type: str
  limit_s:
    description: Seconds that a node may take for its answer.
    type: float
    default: 120
extends_documentation_fragment: read_only
"""

EXAMPLES = r"""
- name: Read what RDMA ports have carried
  fan_out:
    question: rdma_traffic
    hosts: "{{ groups['rdma'] }}"
    named: host
  register: traffic
"""

RETURN = r"""
answers:
  description: What each host answered, or why it did not.
  returned: always
  type: dict
  sample: {n1: {traffic: {host: n1, ports: {}}}, n2: {unreachable: true, msg: Connection timed out}}
"""
