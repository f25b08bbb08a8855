#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin job_run_info."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: job_run_info
short_description: Find a run among those that this controller started
description:
  - Reads the plans in the folder of runs and returns where the run that is meant lives.
  - A run that runs comes before newer ones that have ended. Where the records leave open which run, the head nodes are
    asked, each once, or the jobs' schedulers.
  - Fails with the names of the newest runs when there is no such run.
options:
  runs_dir:
    description: Folder on the controller that holds the folders of all runs.
    type: path
    required: true
  job_id:
    description: The run that is meant.
    type: str
    default: ""
  job_name:
    description:
      - Without O(job_id), the newest run of this job is meant that runs, or else the newest; without both, one of all.
      - What a playbook ran for itself, such as a check of collectives, is meant by its O(job_id) alone.
    type: str
    default: ""
  stop:
    description:
      - The run is to be stopped. One that is being launched is meant, too. A launch that has started nothing is told to
        end; one that is just starting the job on its nodes is waited for.
      - Fails without O(job_id) and O(job_name), and without O(job_id) where several runs run, or where it is not known
        whether one runs.
    type: bool
    default: false
  ask_nodes:
    description: Ask which runs run. Without it, the newest run is meant.
    type: bool
    default: true
attributes:
  check_mode:
    description: Tells no launch to end then.
    support: full
"""

EXAMPLES = r"""
- name: Find the newest run of a job
  job_run_info:
    runs_dir: runs
    job_name: digits
  register: run
"""

RETURN = r"""
job_id:
  description: Name of the run.
  returned: success
  type: str
job_dir:
  description: Its folder on the nodes.
  returned: success
  type: str
run_dir:
  description: Its folder on the controller.
  returned: success
  type: str
over:
  description: Whether its record says how it ended; then nothing changes it any more.
  returned: success
  type: bool
launching:
  description: With O(stop), whether its launch had started nothing, and was told to end.
  returned: success
  type: bool
note:
  description: The runs that run, if several do, with since when, on which hosts and how far; else an empty string.
  returned: success
  type: str
engine:
  description: The job's scheduler, C(kind), C(submit_host), C(engine_id), and what else its plan says; empty over ssh.
  returned: success
  type: dict
"""
