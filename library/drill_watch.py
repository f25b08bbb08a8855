#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin drill_watch."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: drill_watch
short_description: Watch a run of a drill, and kill in it what the drill kills
description:
  - Polls the head node until the run has reached its step. In the runs V(rank) and V(node) it kills processes on the
    last node, once a complete checkpoint is there. Returns at once if the command is interrupted.
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
extends_documentation_fragment: [job.run_dir]
attributes:
  check_mode:
    support: none
    description: It does nothing in check mode.
"""

EXAMPLES = r"""
- name: Watch the run
  drill_watch:
    run_dir: runs/mine-20261126-101500-3f9c
    run: rank
    drill: "{{ planned.drill }}"
"""

RETURN = r"""
killed:
  description: C(host), C(ranks) and number of C(processes) that were killed.
  returned: where something was killed
  type: dict
why:
  description: Why the run was given up, or an empty string.
  returned: success
  type: str
"""
