#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin pair_stragglers."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: pair_stragglers
short_description: Find slow nodes by measurements of pairs
description:
  - Reads the measurements of C(training/benchmark/pairs.py) in a run on the controller, adds those of earlier runs,
    and returns which nodes are slow, wrong or silent, with which confidence, and which pairs to measure next
    (docs/stragglers.md). Measurements never fail the task.
options:
  hosts: {description: "The hosts, in inventory order.", type: list, elements: str, required: true}
  inventory: {description: Inventory options for the commands in actions., type: str, default: ""}
  run_dir: {description: Folder of the run on the controller; without it only O(measured) counts., type: path}
  schedule: {description: The rounds of that run., type: list, elements: list, default: []}
  measured: {description: RV(measurements) of earlier runs., type: list, elements: dict, default: []}
  refused: {description: Findings that prevented the run., type: list, elements: dict, default: []}
  expected: {description: "Bandwidth in GB/s that a pair of healthy nodes reaches, if known.", type: float}
  tolerance:
    description: Part of the healthy bandwidth that a node may lack; more if measurements scatter.
    type: float
extends_documentation_fragment: read_only
"""

EXAMPLES = r"""
- name: Find slow nodes
  pair_stragglers:
    hosts: [n1, n2, n3, n4]
    run_dir: runs/pairs-20261121-101500-3f9c
    schedule: "{{ chosen.rounds }}"
"""

RETURN = r"""
stragglers: {description: The result (docs/report.schema.json)., returned: success, type: dict}
measurements: {description: "All measurements, with rounds of all runs.", returned: success, type: list, elements: dict}
text: {description: The result for reading., returned: success, type: str}
"""
