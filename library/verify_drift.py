#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin verify_drift."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: verify_drift
short_description: Compare settings that the nodes of a cluster should have in common
description:
  - Finds the nodes that differ, by majority vote among nodes that can be compared. No node is visited.
options:
  results: {description: C(answers) of M(verify_read)., type: dict, required: true}
  groups:
    description: Declared group by inventory name; other nodes are grouped by their hardware.
    type: dict
    required: true
  ignore: {description: Facts and environments that are not compared., type: list, elements: str, required: true}
  max_clock_offset: {description: Seconds that a clock may be away from the median., type: float, required: true}
  inventory: {description: Inventory options for the commands in the checks., type: str, required: true}
extends_documentation_fragment: read_only
"""

EXAMPLES = r"""
- name: Compare all nodes
  verify_drift:
    results: "{{ facts.answers }}"
    groups: {}
    ignore: [bios]
    max_clock_offset: 1.0
    inventory: -i inventories/mine.yml
"""

RETURN = r"""
checks: {description: Records of trainyard/findings/checks.py., returned: always, type: list, elements: dict}
groups: {description: Nodes by the kinds of hardware that they were compared in., returned: always, type: dict}
"""
