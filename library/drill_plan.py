#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin drill_plan."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: drill_plan
short_description: Find out whether a job can be drilled, and plan the runs of the drill
description:
  - Checks the settings of the drill, and that the job takes the folder of its checkpoints from the job file. Returns
    the changed variables of the job for each run. Touches no node.
options:
  job:
    description: The variables of the job.
    type: dict
    required: true
  settings:
    description: The variables C(drill_*).
    type: dict
    required: true
attributes:
  check_mode:
    support: full
    description: It changes nothing.
"""

EXAMPLES = r"""
- name: Plan the drill
  drill_plan:
    job: {job_name: mine, job_command: [python, train.py, --dir=/shared/mine], job_checkpoints: /shared/mine}
    settings: {drill_steps: 20, drill_timeout: 1800}
  register: planned
"""

RETURN = r"""
findings:
  description: Why the job cannot be drilled.
  returned: success
  type: list
  elements: dict
drill:
  description: The settings of the drill; empty with findings.
  returned: success
  type: dict
runs:
  description: The runs in their order, each with C(run) and C(changes), variables of the job.
  returned: success
  type: list
  elements: dict
"""
