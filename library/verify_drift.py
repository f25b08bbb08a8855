#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin verify_drift."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: verify_drift
short_description: Compare what the nodes of a cluster should have in common
description:
  - Finds, by majority vote among nodes that can be compared, those that differ, with the difference. Asks no node.
options:
  results:
    description: What M(verify_read) returned as C(answers).
    type: dict
    required: true
  groups:
    description: By inventory name, the declared group of hardware; nodes without one are grouped by what they have.
    type: dict
    required: true
  ignore:
    description: Facts and environments that are not compared, by their names.
    type: list
    elements: str
    required: true
  max_clock_offset:
    description: Seconds that a clock may be away from the median of all.
    type: float
    required: true
  inventory:
    description: The options that name the inventory, for the commands in the checks.
    type: str
    required: true
extends_documentation_fragment: read_only
"""

EXAMPLES = r"""
- name: Compare all nodes
  verify_drift:
    results: "{{ facts.answers }}"
    groups: {}
    ignore: [bios]
    max_clock_offset: 1.0
    inventory: -i inventories/mine
"""

RETURN = r"""
checks:
  description: Records of module_utils/trainyard/findings/checks.py.
  returned: always
  type: list
  elements: dict
groups:
  description: Nodes by the kinds of hardware that they were compared in.
  returned: always
  type: dict
  sample: {"10de:2330, 15b3:1021": [n1, n2]}
"""
