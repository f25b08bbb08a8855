#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin drill_record."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: drill_record
short_description: Record what was done in a run of a drill
description:
  - Reads the folder of a run that has ended. After the run V(stopped) it asks all nodes for their newest checkpoints.
    Findings are about an undisturbed run that cannot be compared with others.
options:
  run:
    description: The run.
    type: str
    choices: [undisturbed, stopped, resumed, rank, node]
    required: true
  drill:
    description: C(drill) of M(drill_plan).
    type: dict
    required: true
  user:
    description: The training user.
    type: str
    required: true
  watched:
    description: Result of M(drill_watch); empty without one.
    type: dict
    required: true
extends_documentation_fragment: [job.run_dir]
attributes:
  check_mode:
    support: full
    description: It changes nothing.
"""

EXAMPLES = r"""
- name: Record the run
  drill_record:
    run_dir: runs/mine-20261126-101500-3f9c
    run: stopped
    drill: "{{ planned.drill }}"
    user: train
    watched: "{{ watched }}"
"""

RETURN = r"""
record:
  description: For M(drill_report).
  returned: success
  type: dict
findings:
  description: Why the drill cannot go on.
  returned: success
  type: list
  elements: dict
over:
  description: Whether the drill ends here.
  returned: success
  type: bool
"""
