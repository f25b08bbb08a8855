#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin collective_check."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: collective_check
short_description: Check the result of every rank of an all-gather
description:
  - Reads the collected logs of a run of C(all_gather.py), and compares each rank's values with 0 to n - 1. Findings
    do not fail the task.
options:
  run_dir: {description: Folder of the run on the controller., type: path}
  refused: {description: Findings that prevented the run., type: list, elements: dict, default: []}
  name: {description: "Name of the check, such as the framework.", type: str, default: all-gather}
  command: {description: Command that repeats the check., type: str, default: ""}
extends_documentation_fragment: read_only
"""

EXAMPLES = r"""
- name: Check the ranks' values
  collective_check:
    run_dir: runs/all-gather-pytorch-20261120-101500-3f9c
  register: checked
"""

RETURN = r"""
findings: {description: All findings., returned: success, type: list, elements: dict}
ranks: {description: Number of ranks of the job., returned: success, type: int}
nodes: {description: Number of nodes of the job., returned: always, type: int}
check: {description: The same as a check of the cluster., returned: success, type: dict}
"""
