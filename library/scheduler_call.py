#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin scheduler_call."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: scheduler_call
short_description: Ask a scheduler how a job is, and bring its logs
description:
  - Runs the module of a scheduler (Slurm, Kubernetes) that says how a job is, once or until the job is over, and prints
    the C(line) of each answer, and each line of C(told) once.
  - An action plugin. To interrupt it changes nothing for the job.
version_added: "0.1.0"
options:
  module:
    description: Module that returns C(state), C(line) and, where it brings any, C(logs) (base64, by name).
    type: str
    required: true
  arguments:
    description: Its options.
    type: dict
    required: true
  wait:
    description: Ask again while the state is V(pending) or V(running).
    type: bool
    default: false
  run_dir:
    description: Folder of the run on the controller, into whose C(logs) logs are written.
    type: path
  keep:
    description: Keep a log that was brought before and is longer than what comes now; for a job that is over.
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
- name: Watch a job of Slurm
  scheduler_call:
    module: slurm_job_info
    arguments: {job_id: digits-20261121-101500, engine_id: "42"}
    wait: true
"""

RETURN = r"""
files:
  description: Names of the logs that were brought.
  returned: always
  type: list
  elements: str
state:
  description: How the job is, and whatever else the module returned.
  returned: when the module says so
  type: str
"""
