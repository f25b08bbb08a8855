#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin job_list."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: job_list
short_description: List the runs of a controller
description:
  - Lists jobs, drills and verifications of the folder of runs, what runs now first, and writes its C(index.html).
  - Hosts that are not in the inventory are not asked. Jobs without an end that were started with another inventory have
    the state V(other_inventory).
  - With O(compare), returns how two jobs ended and which of their settings differ.
options:
  runs_dir:
    description: Folder of the runs.
    type: path
    required: true
  state:
    description: Only runs of this state, such as V(running) or V(failed).
    type: str
    default: ""
  name:
    description: Only jobs of this name, or verifications of this cluster.
    type: str
    default: ""
  days:
    description: Only runs that started in the last days; 0 for all.
    type: float
    default: 0
  ask_nodes:
    description: Whether to ask the heads of jobs without a final record if they run, and hosts that may lead them.
    type: bool
    default: true
  compare:
    description: Ids of two jobs.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: List what runs now
  job_list:
    runs_dir: runs
    state: running
  register: running
"""

RETURN = r"""
runs:
  description: One dictionary for each run; without O(compare).
  returned: success
  type: list
text:
  description: The list, or the comparison, as text.
  returned: success
  type: str
"""
