#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin verify_read."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: verify_read
short_description: Read what the verification of a cluster compares and checks, on all nodes
description:
  - Asks all nodes at once for what M(verify_facts) shows of one, and how far their clocks are from the controller's. A
    node that gives no answer in time delays no other.
options:
  hosts:
    description: Whom to ask, inventory names. Those that C(--limit) leaves out are not asked.
    type: list
    elements: str
    required: true
  network:
    description: The job network, a CIDR or an interface; empty for that of the inventory's addresses.
    type: str
    required: true
  user:
    description: The training user.
    type: str
    required: true
  root:
    description: Folder of the software that the project installs.
    type: path
    required: true
  venvs:
    description: Folder whose environments are compared package by package.
    type: path
    required: true
  ascend_root:
    description: Folder of Ascend's software.
    type: path
    required: true
  devices_only:
    description: Read nothing but the devices, as for a second reading of their counters.
    type: bool
    default: false
  tree:
    description: Folder on the nodes that holds a captured machine, for tests.
    type: path
    default: /
  limit_s:
    description: Seconds that a node may take for its answer.
    type: float
    required: true
extends_documentation_fragment: read_only
seealso:
  - module: verify_facts
"""

EXAMPLES = r"""
- name: Read all nodes
  verify_read:
    hosts: "{{ groups['compute'] }}"
    network: ""
    user: train
    root: /opt/trainyard
    venvs: /opt/trainyard/venvs
    ascend_root: /usr/local/Ascend
    limit_s: 240
  register: facts
"""

RETURN = r"""
answers:
  description:
    - By host what M(verify_facts) returns of one, and C(clock) with C(offset_s) and C(margin_s); or why there is no
      answer.
  returned: always
  type: dict
"""
