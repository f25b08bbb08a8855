#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin job_start."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: job_start
short_description: Start a job that was prepared on all its nodes
description:
  - Sends each node its part of the plan, the source and the secrets, which go through standard input alone.
  - A job for Slurm is submitted; one for Kubernetes was applied before. What that calls it stands in the run's folder.
options:
  run_dir:
    description: Folder of the run on the controller.
    type: path
    required: true
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
    description: The job's variables job_events, job_events_secret and job_events_interval; for the head alone.
    type: dict
    default: {}
  wait:
    description: Whether somebody waits for the end; without, it is said how to go on.
    type: bool
    required: true
  record:
    description: Whether the job is a playbook's own, which changes nothing for its user.
    type: bool
    default: false
attributes:
  check_mode:
    description: Does nothing then.
    support: none
"""

EXAMPLES = r"""
- name: Start it
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
  description: What nodes said that could not start their part, by host.
  returned: always
  type: dict
interrupted:
  description: Somebody interrupted the command before any node was visited; nothing was started.
  returned: when that is so
  type: bool
"""
