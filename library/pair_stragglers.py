#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin pair_stragglers."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: pair_stragglers
short_description: Check nodes by what pairs of them measured
description:
  - Reads what C(training/benchmark/pairs.py) printed in a run on the controller, adds it to what earlier runs measured,
    and says which nodes are slow, wrong or silent, how sure that is, and which pairs would decide what is open.
  - Never fails because of what was measured.
options:
  hosts:
    description: The hosts, in the order of the inventory.
    type: list
    elements: str
    required: true
  inventory:
    description: The inventories as options C(-i), for the commands that actions name.
    type: str
    default: ""
  run_dir:
    description: Folder of the run on the controller; without it only what was measured before is checked.
    type: path
  schedule:
    description: The rounds of that run.
    type: list
    elements: list
    default: []
  measured:
    description: RV(measurements) of earlier runs.
    type: list
    elements: dict
    default: []
  refused:
    description: Findings because of which there was no run.
    type: list
    elements: dict
    default: []
  expected:
    description: Bandwidth in GB/s that a pair of healthy nodes reaches, where it is known.
    type: float
  tolerance:
    description: Part of the healthy bandwidth that a node may lack; more where measurements scatter.
    type: float
extends_documentation_fragment: read_only
"""

EXAMPLES = r"""
- name: Check the nodes
  pair_stragglers:
    hosts: [n1, n2, n3, n4]
    run_dir: runs/pairs-20261121-101500-3f9c
    schedule: "{{ chosen.rounds }}"
  register: checked
"""

RETURN = r"""
stragglers:
  description: The result of the pairs, as docs/stragglers.md describes it.
  returned: success
  type: dict
measurements:
  description: All measurements so far, with rounds counted over all runs.
  returned: success
  type: list
  elements: dict
text:
  description: The result of the pairs for reading, in a line, and another one for each node that is not well.
  returned: success
  type: str
"""
