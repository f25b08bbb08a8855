#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin drill_folder."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: drill_folder
short_description: Make or remove the folder of a drill's checkpoints
description:
  - Works on all nodes of a run, as the training user. Removes nothing but a folder whose name is that of a drill. A
    folder that cannot be made is a finding, and one that cannot be removed a warning.
options:
  path:
    description: The folder on the nodes.
    type: str
    required: true
  state:
    description: Whether it is made or removed.
    type: str
    choices: [present, absent]
    required: true
  user:
    description: The training user.
    type: str
    required: true
extends_documentation_fragment: [job.run_dir]
attributes:
  check_mode:
    support: none
    description: It does nothing in check mode.
"""

EXAMPLES = r"""
- name: Remove the checkpoints of the drill
  drill_folder:
    run_dir: runs/mine-20261126-101500-3f9c
    path: /shared/mine.drill-20261126-101500-3f9c
    user: train
    state: absent
"""

RETURN = r""" # """
