#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin job_collect."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: job_collect
short_description: Copy the logs of a job to the controller
description:
  - Copies the logs of all nodes into the run's folder, and returns the state of the job on each node, or in its
    scheduler.
options:
  stop:
    description: End remaining processes of the job first.
    type: bool
    required: true
  asked:
    description: The purpose, as for M(job_report). Only V(stop) ends a job of Slurm or Kubernetes.
    type: str
    choices: [end, stop, tell, record]
    required: true
  user:
    description: The training user. With O(stop), processes that this user began during the job are named.
    type: str
    required: true
  not_started:
    description: Answers of nodes that could not start their ranks (M(job_start)).
    type: dict
    default: {}
  log_limit:
    description: Upper bound for each log, in bytes; of a longer log, the end is copied.
    type: int
    required: true
extends_documentation_fragment: [job.run_dir]
attributes:
  check_mode:
    support: full
    description: It ends nothing and writes no file in check mode.
"""

EXAMPLES = r"""
- name: Copy the logs
  job_collect:
    run_dir: runs/digits-20261120-101500-3f9c
    stop: false
    asked: tell
    user: train
    log_limit: 4194304
"""

RETURN = r"""
answers:
  description: By host, the result of C(collect) in module_utils/trainyard_node/agent.py, or why there is none.
  returned: where the job runs over ssh
  type: dict
notes:
  description: Lines about the files of O(job_outputs) that were written, and about those that were left out.
  returned: where the job runs over ssh
  type: list
job_state:
  description: The state in the job's scheduler (C(JobState) of module_utils/trainyard/job/schedulers).
  returned: where a scheduler runs the job
  type: dict
"""
