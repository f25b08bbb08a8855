#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin job_clean."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: job_clean
short_description: Remove the chosen folders of ended jobs
description:
  - Records missing ends of jobs, then removes the folders that M(job_clean_plan) chose on nodes, in schedulers and in
    O(runs_dir). Fails for folders that could not be removed.
options:
  chosen:
    description: The result of M(job_clean_plan).
    type: dict
    required: true
  log_limit:
    description: Upper bound for each collected log, in bytes.
    type: int
    required: true
extends_documentation_fragment: [job.runs_dir, job.excluded_file]
attributes:
  check_mode:
    support: full
    description: It only prints what would be removed.
seealso:
  - module: job_clean_plan
"""

EXAMPLES = r"""
- name: Remove the chosen folders
  job_clean:
    runs_dir: runs
    chosen: "{{ chosen }}"
    log_limit: 16777216
    excluded_file: runs/.excluded-lab.json
"""

RETURN = r""" # """
