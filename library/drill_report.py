#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin drill_report."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: drill_report
short_description: Compare the runs of a drill, and report what the job survives
description:
  - Writes C(drill.html) and C(drill.json) into the folder of the undisturbed run, and prints the result. Fails where a
    check failed.
options:
  drill:
    description: C(drill) of M(drill_plan).
    type: dict
    required: true
  runs:
    description: C(record) of M(drill_record) for each run.
    type: list
    elements: dict
    required: true
extends_documentation_fragment: [job.runs_dir]
attributes:
  check_mode:
    support: none
    description: It does nothing in check mode.
"""

EXAMPLES = r"""
- name: Report
  drill_report:
    drill: "{{ planned.drill }}"
    runs: "{{ records }}"
    runs_dir: runs
"""

RETURN = r"""
state:
  description: V(pass), V(fail) or V(unknown).
  returned: always
  type: str
headline:
  description: The result in a line.
  returned: always
  type: str
"""
