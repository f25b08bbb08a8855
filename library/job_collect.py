#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin job_collect."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: job_collect
short_description: Bring the logs of a job to the controller
description:
  - Brings the logs of one node into the run's folder on the controller and returns how the job is on the node.
  - An action plugin; it uses M(job_process_info), or M(job_process) when O(stop) is true.
version_added: "0.1.0"
options:
  job_id:
    description: The job.
    type: str
    required: true
  job_dir:
    description: The job's folder on the node.
    type: path
    required: true
  run_dir:
    description: Folder of the run on the controller.
    type: path
    required: true
  stop:
    description: End what is left of the job on the node first, and fail when something stays.
    type: bool
    default: false
  log_limit:
    description: Greatest number of bytes to bring of each log; of a longer log the end is brought.
    type: int
    default: 4194304
  keep:
    description: Keep a file that was brought before and is longer than what the node has now; for a job that is over.
    type: bool
    default: false
attributes:
  check_mode:
    description: Can run in check mode; it writes no file then.
    support: full
author:
  - trainyard
"""

EXAMPLES = r"""
- name: Bring the logs
  job_collect:
    job_id: digits-20261120-101500
    job_dir: /var/lib/trainyard/jobs/digits-20261120-101500
    run_dir: runs/digits-20261120-101500
"""

RETURN = r"""
files:
  description: Names of the files that were brought.
  returned: always
  type: list
  elements: str
left:
  description: Number of processes that carry the job's id.
  returned: always
  type: int
"""
