#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin verify_devices."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: verify_devices
short_description: Check the devices of all nodes
description:
  - Checks GPUs, NPUs and RDMA ports by readings; with O(before), only which error counters grew since then. An answer
    that a device does not give is unknown, never a pass. No node is visited.
options:
  results: {description: C(answers) of M(verify_read)., type: dict, required: true}
  before: {description: The same from an earlier time., type: dict}
  groups: {description: Nodes by group (M(verify_drift)); ports are compared within one., type: dict, default: {}}
  allowed_growth: {description: Growth by counter that is no failure; others may not grow., type: dict, default: {}}
  xids: {description: Xids of hardware; empty for those of NVIDIA's catalog., type: list, elements: int, default: []}
  inventory: {description: Inventory options for the commands in the checks., type: str, required: true}
extends_documentation_fragment: read_only
"""

EXAMPLES = r"""
- name: Check which counters grew while the benchmarks ran
  verify_devices:
    before: "{{ facts.answers }}"
    results: "{{ afterwards.answers }}"
    allowed_growth: {symbol_error: 10}
    inventory: -i inventories/mine.yml
"""

RETURN = r"""
checks: {description: Records of trainyard/findings/checks.py., returned: always, type: list, elements: dict}
"""
