#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin collective_check."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: collective_check
short_description: Check what the ranks of a collective check gathered
description:
  - Reads the collected logs of a run of C(all_gather.py) on the controller, and compares what every rank gathered with
    0 to n - 1.
  - Returns all faults and does not fail because of them. Changes nothing.
options:
  run_dir:
    description: Folder of the run on the controller, with C(plan.json), C(summary.json) and C(logs). Or O(refused).
    type: path
  refused:
    description: Findings because of which there was no run.
    type: list
    elements: dict
    default: []
  name:
    description: What the check is called, such as the framework and its launcher.
    type: str
    default: all-gather
  command:
    description: How to repeat the check.
    type: str
    default: ""
extends_documentation_fragment: read_only
"""

EXAMPLES = r"""
- name: Check what the ranks gathered
  collective_check:
    run_dir: runs/all-gather-pytorch-20261120-101500-3f9c
  register: checked
"""

RETURN = r"""
findings:
  description: All faults, each with host, check, found, expected and action.
  returned: success
  type: list
  elements: dict
ranks:
  description: Number of ranks of the job; 0 where there was no run.
  returned: success
  type: int
nodes:
  description: Number of nodes of the job; 0 for one that could not run.
  returned: always
  type: int
check:
  description: The same as a check of the cluster, with C(state), C(hosts), C(reason), C(action) and more.
  returned: success
  type: dict
"""
