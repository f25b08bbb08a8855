#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin job_report."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: job_report
short_description: Write the summary and the page of a run, and tell
description:
  - Reads the plan and the collected logs of a run's folder and what the nodes said, and writes C(summary.json) and
    C(report.html) there.
  - A record of how the job ended is written once. Whatever the nodes say later, it stays; then only the text tells
    how they are now, and what clean.yml has removed there.
  - The page is one file that needs no network. It holds plotly.js where there are metrics to draw.
  - Runs on the controller, whose Python has plotly.
options:
  run_dir:
    description: Folder of the run on the controller.
    type: path
    required: true
  asked:
    description:
      - V(end) fails where the job did not succeed, V(stop) where something of it is left or nobody knows how it ended.
      - V(tell) tells, and V(record) does not even that.
    type: str
    required: true
    choices: [end, stop, tell, record]
  answers:
    description: What M(job_collect) returned.
    type: dict
    default: {}
  not_started:
    description: What M(job_start) returned.
    type: dict
    default: {}
  job_state:
    description:
      - How the job is by its scheduler (C(JobState) of module_utils/trainyard/schedulers), instead of O(answers).
      - Without C(state) the scheduler did not answer, and C(msg) says why. There has to be a record then.
    type: dict
  excluded_file:
    description:
      - File on the controller with the excluded hosts. Those that the job's head reports are added, and with
        O(asked=tell) all of them are told.
    type: path
    required: true
attributes:
  check_mode:
    description: Can run in check mode; it writes no file then.
    support: full
"""

EXAMPLES = r"""
- name: Tell how it is
  job_report:
    run_dir: runs/digits-20261120-101500-3f9c
    answers: "{{ collected.answers }}"
    asked: tell
    excluded_file: runs/.excluded-lab.json
"""

RETURN = r"""
state:
  description: How the job is, V(succeeded), V(failed), V(timed_out), V(stopped), V(running) or V(lost).
  returned: always
  type: str
left:
  description: Hosts that did not answer or where processes of the job still run.
  returned: always
  type: list
  elements: str
"""
