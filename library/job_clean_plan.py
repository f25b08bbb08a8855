#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin job_clean_plan."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: job_clean_plan
short_description: Choose which folders of ended jobs to remove
description:
  - Reads the folders of jobs on all nodes, and the jobs of schedulers. Folders of a job stay while it runs on any node,
    or if its scheduler gives no answer. Fails if the named job still runs or is unknown.
options:
  hosts:
    description: The nodes.
    type: list
    elements: str
    required: true
  known_hosts:
    description: All hosts of the inventory, for those that submitted jobs to Slurm.
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
  state_dir:
    description: Folder on the nodes that holds C(jobs/).
    type: path
    required: true
  of_runs:
    description: >-
      Remove the folders in O(runs_dir), too. With O(days) also old reports of C(verify.yml), except the newest of
      each cluster, and plans that were never started.
    type: bool
    default: false
extends_documentation_fragment: [job.runs_dir, read_only]
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
  description: By host, C(job_id) and C(job_dir) of each folder to remove.
  returned: success
  type: dict
objects:
  description: Runs whose objects in Kubernetes are to be removed.
  returned: success
  type: list
  elements: dict
records:
  description: Names of the folders in O(runs_dir) to remove.
  returned: success
  type: list
  elements: str
text:
  description: The same for reading.
  returned: success
  type: str
"""
