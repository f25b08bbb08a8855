#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin job_clean_plan."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: job_clean_plan
short_description: Decide what ended jobs have left is removed from where
description:
  - Asks all nodes for the folders of jobs. A job that runs on one of them keeps its folders on all.
  - Asks schedulers of their jobs, too. A job that waits or runs there stays, and one of which its scheduler says
    nothing.
  - Fails when the job that is named still runs or is nowhere. Nothing is removed.
options:
  hosts:
    description: The nodes.
    type: list
    elements: str
    required: true
  known_hosts:
    description: All hosts of the inventory. Those of them from which jobs were submitted to Slurm are asked, too.
    type: list
    elements: str
    required: true
  job_id:
    description: The job whose folders are to be removed.
    type: str
    default: ""
  days:
    description: Instead of O(job_id), all jobs that ended more than this many days ago.
    type: float
  runs_dir:
    description: Folder of the runs on the controller.
    type: path
    required: true
  state_dir:
    description: Folder on the nodes that holds C(jobs/).
    type: path
    required: true
  of_runs:
    description:
      - Whether what is kept in O(runs_dir) of these jobs is to go, too.
      - With O(days) also reports of C(verify.yml), except the newest of each cluster, and plans never started.
      - What is kept of a job that may still run stays.
    type: bool
    default: false
extends_documentation_fragment: read_only
seealso:
  - module: job_clean
"""

EXAMPLES = r"""
- name: Choose jobs that ended a month ago
  job_clean_plan:
    hosts: "{{ groups.compute }}"
    known_hosts: "{{ groups.all }}"
    runs_dir: runs
    state_dir: /var/lib/trainyard
    days: 30
"""

RETURN = r"""
remove:
  description: By host, C(job_id) and C(job_dir) of what is to go there.
  returned: success
  type: dict
  sample: {n1: [{job_id: digits-20261120-101500-3f9c, job_dir: /var/lib/trainyard/jobs/digits-20261120-101500-3f9c}]}
objects:
  description: Runs whose objects in Kubernetes are to go; with C(job_id), C(engine_id) and C(settings).
  returned: success
  type: list
  elements: dict
records:
  description: Names of the folders in O(runs_dir) that are to go.
  returned: success
  type: list
  elements: str
text:
  description: The same for reading.
  returned: success
  type: str
"""
