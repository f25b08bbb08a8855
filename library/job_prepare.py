#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin job_prepare."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: job_prepare
short_description: Probe the nodes of a job, plan it, and check whether it can run
description:
  - Checks the job file, places the ranks, lets every node check its node plan, and writes C(plan.json) and the source
    archive to the run's folder. Nothing is started.
  - Reports all findings of the job file and of every node at once. Cached facts of an earlier launch are used where the
    node confirms them.
  - A job for Slurm or Kubernetes queries the scheduler and no node; the submitted files are beside the plan.
options:
  job:
    description: The variables of the job file, C(job_*), as docs/job-file.md describes them; names only for secrets.
    type: dict
    required: true
  given:
    description: Names of all variables that begin with C(job_), to find misspelt ones.
    type: list
    elements: str
    required: true
  hosts:
    description: The hosts of the job in the order of their ranks, or those from which its scheduler chooses.
    type: list
    elements: str
    required: true
  available:
    description: Number of hosts in the group of the job.
    type: int
    required: true
  state_dir:
    description: Folder on the nodes that holds C(jobs/).
    type: path
    required: true
  submit_host:
    description: Host that submits the job to its scheduler; empty over ssh, or without such a host in the inventory.
    type: str
    required: true
  known_hosts:
    description: All hosts of the inventory.
    type: list
    elements: str
    required: true
  facts_file:
    description: File on the controller that caches the nodes' facts between launches.
    type: path
    required: true
  user:
    description: The training user.
    type: str
    required: true
  mpi_prefix:
    description: Installation of Open MPI by the role openmpi.
    type: path
    required: true
  all_reduce:
    description: The optional program all_reduce_perf of nccl-tests on the nodes, for the health check.
    type: path
    required: true
  venvs:
    description: Folder of the cluster's Python environments, which may have tools.
    type: path
    required: true
  asked_by:
    description: The playbook that runs the job.
    type: str
    required: true
  found:
    description: Further findings to report with the others.
    type: list
    elements: dict
    default: []
  follow:
    description: O(follow) of M(job_watch), to check it before the start.
    type: raw
    default: ""
  live:
    description: O(live) of M(job_watch), likewise.
    type: bool
    default: false
  record:
    description: Return findings as RV(refused) instead of failing.
    type: bool
    default: false
extends_documentation_fragment: [job.runs_dir, job.excluded_file]
attributes:
  check_mode:
    description: Shows the plan, and replaces the one of the previous check.
    support: full
"""

EXAMPLES = r"""
- name: Prepare the job
  job_prepare:
    job: {job_name: digits, job_launcher: torchrun, job_command: [python, train.py]}
    given: [job_name, job_launcher, job_command]
    hosts: [n1, n2]
    available: 2
    submit_host: ""
    known_hosts: [n1, n2]
    runs_dir: runs
    state_dir: /var/lib/trainyard
    facts_file: runs/.facts.json
    excluded_file: runs/.excluded-lab.json
    user: train
    mpi_prefix: /opt/trainyard/openmpi
    all_reduce: /opt/trainyard/nccl-tests/bin/all_reduce_perf_mpi
    venvs: /opt/trainyard/venvs
    asked_by: launch.yml
  register: run
"""

RETURN = r"""
job_id:
  description: Name of the run; empty with findings.
  returned: always
  type: str
job_dir:
  description: Its folder on the nodes.
  returned: always
  type: str
run_dir:
  description: Its folder on the controller.
  returned: always
  type: str
settings:
  description: Settings for the tasks of its scheduler.
  returned: always
  type: dict
refused:
  description: All findings, each with host, check, found, expected and action.
  returned: always
  type: list
  elements: dict
facts_file:
  description: The file with the cached facts.
  returned: always
  type: str
"""
