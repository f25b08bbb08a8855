#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin job_run_info."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: job_run_info
short_description: Find a run among those that this controller started
description:
  - Reads the plans in the folder of runs. A run that still runs comes before newer ones that have ended; if the
    records do not show which, head nodes and schedulers are queried. Without such a run, fails with the names of the
    newest ones.
options:
  job_id:
    description: The run to find.
    type: str
    default: ""
  job_name:
    description: >-
      Without O(job_id), the newest run of this job; without both, the newest run. Runs that playbooks start for
      themselves are found by O(job_id) alone.
    type: str
    default: ""
  stop:
    description: >-
      The caller will stop the run. A launch that has started nothing gets the message to end. Fails without O(job_id)
      if several runs still run, or if that is unknown.
    type: bool
    default: false
  ask_nodes:
    description: Query which runs still run; otherwise return the newest run.
    type: bool
    default: true
extends_documentation_fragment: [job.runs_dir]
attributes:
  check_mode:
    support: full
    description: In check mode it sends no launch the message to end.
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
  description: Whether its record has the end.
  returned: success
  type: bool
launching:
  description: With O(stop), whether its launch had started nothing, and got the message to end.
  returned: success
  type: bool
note:
  description: The runs that still run, if there are several.
  returned: success
  type: str
engine:
  description: The job's scheduler (C(kind), C(submit_host), C(engine_id), C(settings)); empty over ssh.
  returned: success
  type: dict
"""
