#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin verify_read."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: verify_read
short_description: Read the facts of all nodes for the verification of a cluster
description:
  - Asks all nodes at once for the facts of M(verify_facts), and measures the offsets of their clocks.
options:
  hosts: {description: Inventory names; C(--limit) excludes hosts., type: list, elements: str, required: true}
  network: {description: "Job network, a CIDR or an interface; empty for the inventory's.", type: str, required: true}
  user: {description: The training user., type: str, required: true}
  root: {description: Folder of the software that the project installs., type: path, required: true}
  venvs: {description: Folder of the environments to compare., type: path, required: true}
  ascend_root: {description: Folder of Ascend's software., type: path, required: true}
  devices_only: {description: "Read only the devices, as for a second reading.", type: bool, default: false}
  tree: {description: "Folder on the nodes that holds a captured machine, for tests.", type: path, default: /}
  limit_s: {description: Seconds that a node may take for its answer., type: float, required: true}
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
  description: >-
    By host, the result of M(verify_facts) and C(clock) with C(offset_s) and C(margin_s); or why there is no answer.
  returned: always
  type: dict
"""
