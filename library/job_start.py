#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin job_start."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: job_start
short_description: Start a prepared job on all its nodes
description:
  - Sends each node its share of the plan, the source and the secrets, which go through standard input alone. A job of
    Slurm or Kubernetes is submitted, and its id in the scheduler is recorded in the run's folder.
options:
  user:
    description: The training user.
    type: str
    required: true
  secret_env:
    description: Secret variables of the ranks.
    type: dict
    default: {}
  secret_files:
    description: Secret files of the job's folder by name, base64.
    type: dict
    default: {}
  events:
    description: The variables job_events, job_events_secret and job_events_interval, for hosts that may lead the job.
    type: dict
    default: {}
  wait:
    description: Whether the caller waits for the end; if not, further commands are printed.
    type: bool
    required: true
  record:
    description: Whether the job is a playbook's own, and not a user's run.
    type: bool
    default: false
extends_documentation_fragment: [job.run_dir]
attributes:
  check_mode:
    support: none
    description: It does nothing in check mode.
"""

EXAMPLES = r"""
- name: Start the job
  job_start:
    run_dir: "{{ run.run_dir }}"
    user: train
    wait: true
"""

RETURN = r"""
job_id:
  description: Name of the run.
  returned: always
  type: str
not_started:
  description: Answers of nodes that could not start their ranks, by host.
  returned: always
  type: dict
interrupted:
  description: The command was interrupted before any node was visited; nothing was started.
  returned: only then
  type: bool
"""
