#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin job_report."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: job_report
short_description: Write the summary and the page of a run, and print how the job ended
description:
  - Writes C(summary.json) and C(report.html) into the run's folder, from its plan, its collected logs and the nodes'
    answers. A record of the end is written once; later calls only print the state of the nodes.
options:
  asked:
    description: >-
      V(end) fails unless the job succeeded, V(stop) if processes remain or its end is unknown; V(tell) prints,
      V(record) does not.
    type: str
    choices: [end, stop, tell, record]
    required: true
  answers:
    description: C(answers) of M(job_collect).
    type: dict
    default: {}
  not_started:
    description: C(not_started) of M(job_start).
    type: dict
    default: {}
  notes:
    description: C(notes) of M(job_collect).
    type: list
    elements: str
    default: []
  job_state:
    description: >-
      Instead of O(answers), C(job_state) of M(job_collect). Without C(state) the scheduler gave no answer, and C(msg)
      says why.
    type: dict
extends_documentation_fragment: [job.run_dir, job.excluded_file]
attributes:
  check_mode:
    support: full
    description: It writes no file in check mode.
"""

EXAMPLES = r"""
- name: Print the state of a job
  job_report:
    run_dir: runs/digits-20261120-101500-3f9c
    answers: "{{ collected.answers }}"
    asked: tell
    excluded_file: runs/.excluded-lab.json
"""

RETURN = r"""
state:
  description: V(succeeded), V(failed), V(timed_out), V(stopped), V(running) or V(lost).
  returned: always
  type: str
left:
  description: Hosts that did not answer or where processes of the job still run.
  returned: always
  type: list
  elements: str
"""
