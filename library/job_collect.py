#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin job_collect."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: job_collect
short_description: Bring the logs of a job to the controller
description:
  - Brings the logs of all nodes into the run's folder and returns how the job is on each, or by its scheduler.
options:
  run_dir:
    description: Folder of the run on the controller.
    type: path
    required: true
  stop:
    description: End what is left of the job on the nodes first.
    type: bool
    required: true
  asked:
    description: Who asks, as for M(job_report). A job of Slurm or Kubernetes is ended with V(stop) alone.
    type: str
    required: true
    choices: [end, stop, tell, record]
  user:
    description: The training user. What it began during the job, and no job has, is named with O(stop).
    type: str
    required: true
  not_started:
    description:
      - What nodes said that could not start their part, by host (M(job_start)).
      - Where one of them says that the job's id is another launch's, none of them is visited.
    type: dict
    default: {}
  log_limit:
    description: Greatest number of bytes to bring of each log; of a longer log the end is brought.
    type: int
    required: true
attributes:
  check_mode:
    description: Can run in check mode; it ends nothing and writes no file then.
    support: full
"""

EXAMPLES = r"""
- name: Bring the logs
  job_collect:
    run_dir: runs/digits-20261120-101500-3f9c
    stop: false
    asked: tell
    user: train
    log_limit: 4194304
"""

RETURN = r"""
answers:
  description:
    - How the job is on each host, C(collect) of module_utils/trainyard_node/agent.py; or why the host did not answer.
    - C(known), whether the job's folder is there; C(monitor_alive); C(processes) with their ends; C(left), the number
      of processes that carry the job's id; C(monitor) and C(cluster), what the monitor wrote last.
  returned: where the job runs over ssh
  type: dict
job_state:
  description: How the job is by its scheduler (C(JobState) of module_utils/trainyard/schedulers).
  returned: where the job was handed to one
  type: dict
"""
