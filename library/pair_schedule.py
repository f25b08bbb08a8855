#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin pair_schedule."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: pair_schedule
short_description: Choose which pairs of nodes are measured in which round
description:
  - Puts all hosts into rounds of disjoint pairs, and writes the rounds beside a copy of the program that measures
    them, as the source of a job. The caller removes that folder.
options:
  hosts: {description: "The hosts, in the order of their ranks.", type: list, elements: str, required: true}
  rounds: {description: "Number of first rounds, or V(full) for every pair.", type: str, default: "2"}
  schedule:
    description: Rounds to take as they are, lists of pairs of hosts.
    type: list
    elements: list
    default: []
  source: {description: Folder of the program., type: path, required: true}
attributes:
  check_mode:
    support: full
    description: The folder is made in both modes, as a plan needs it.
"""

EXAMPLES = r"""
- name: Choose the pairs
  pair_schedule:
    hosts: [n1, n2, n3, n4]
    source: training/benchmark
  register: chosen
"""

RETURN = r"""
rounds:
  description: Lists of pairs of hosts; none for fewer than two hosts.
  returned: success
  type: list
  elements: list
source: {description: Folder with the program and C(schedule.json); empty without rounds., returned: success, type: str}
"""
