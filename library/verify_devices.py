#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin verify_devices."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: verify_devices
short_description: Check the devices of all nodes, at one time or between two
description:
  - Checks GPUs, NPUs and RDMA ports. With O(before) it checks which error counters grew since then, and nothing else.
  - What a device does not say is unknown, never well. Asks no node.
options:
  results:
    description: What M(verify_read) returned as C(answers).
    type: dict
    required: true
  before:
    description: The same from an earlier time.
    type: dict
  groups:
    description: Groups of hardware with their nodes, as M(verify_drift) returns them; ports are compared within one.
    type: dict
    default: {}
  allowed_growth:
    description: By counter, the growth that is no fault. Counters that are not named may not grow.
    type: dict
    default: {}
  xids:
    description: Xid numbers that are a fault of the device; empty for those of the hardware in NVIDIA's catalogue.
    type: list
    elements: int
    default: []
  inventory:
    description: The options that name the inventory, for the commands in the checks.
    type: str
    required: true
extends_documentation_fragment: read_only
"""

EXAMPLES = r"""
- name: Check what grew while the benchmarks ran
  verify_devices:
    before: "{{ facts.answers }}"
    results: "{{ afterwards.answers }}"
    allowed_growth: {symbol_error: 10}
    inventory: -i inventories/mine
"""

RETURN = r"""
checks:
  description: Records of module_utils/trainyard/findings/checks.py.
  returned: always
  type: list
  elements: dict
"""
