#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin job_runs."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: job_runs
short_description: Find, list, pack or remove the runs that this controller started
description: The examples have the options of each step.
options:
  step:
    description:
      - V(find) reads the plans in the folder of runs. A run that still runs comes before newer ones that have ended; if
        the records do not show which, head nodes and schedulers are queried. It fails without such a run, with the
        names of the newest ones.
      - V(listing) lists jobs, drills and verifications, what runs now first, and writes C(index.html). It does not ask
        hosts that are not in the inventory. Jobs without an end that were started with another inventory have the
        state V(other_inventory). With O(compare), it returns how two jobs ended and which of their settings differ.
      - V(stacks) takes the stacks of all ranks three times within seconds, groups ranks by equal stacks, and names the
        ranks that are elsewhere. The job continues; no rank is stopped or signalled. Without py-spy, only the state and
        the wait channel of each rank are known. It fails if no rank runs, and for jobs of Slurm or Kubernetes.
      - V(choose) chooses which folders of ended jobs to remove, on all nodes and in schedulers. Folders of a job stay
        while it runs on any node, or if its scheduler gives no answer. It fails if the named job still runs
        or is unknown.
      - V(clean) records missing ends of jobs, then removes O(chosen). It fails for folders that could not be removed.
      - V(archive) packs the record of a job or of a verification, the begin and the end of its logs, versions, and
        facts and journals of its nodes into one file that only its owner can read, for an issue. Recognized secrets are
        hidden; its C(README) lists them, the files, and the nodes without an answer. It has at most 24 MiB of text.
        Nothing is changed on the nodes. A node that does not answer does not fail the task; a missing run does.
    type: str
    choices: [find, listing, stacks, choose, clean, archive]
    required: true
  runs_dir: {description: Folder on the controller that holds the folders of all runs., type: path}
  run_dir: {description: Folder of the run on the controller., type: path}
  job_id: {description: "The run to find, or whose folders are to be removed.", type: str, default: ""}
  job_name:
    description: >-
      Without O(job_id), the newest run of this job; without both, the newest run. Runs that playbooks start for
      themselves are found by O(job_id) alone.
    type: str
    default: ""
  stop:
    description: >-
      The caller will stop the run. A launch that has started nothing gets the message to end, but not in check mode.
      Fails without O(job_id) if several runs still run, or if that is unknown.
    type: bool
    default: false
  ask_nodes:
    description: >-
      Whether to ask the heads of jobs without a final record if they run, and hosts that may lead them. Without it,
      V(find) returns the newest run.
    type: bool
    default: true
  state: {description: "Only runs of this state, such as V(running) or V(failed).", type: str, default: ""}
  name: {description: "Only jobs of this name, or verifications of this cluster.", type: str, default: ""}
  days: {description: Only runs that started in the last days; 0 for all., type: float, default: 0}
  compare: {description: Ids of two jobs., type: list, elements: str, default: []}
  seconds:
    description: Sample once a second for this long, to find the rank for which others wait; at least 20 are needed.
    type: int
    default: 0
  hosts: {description: The nodes., type: list, elements: str}
  known_hosts:
    description: All hosts of the inventory, for those that submitted jobs to Slurm.
    type: list
    elements: str
  older_than_days: {description: "Instead of O(job_id), all jobs that ended more than this many days ago.", type: float}
  state_dir: {description: Folder on the nodes that holds C(jobs/)., type: str}
  of_runs:
    description: >-
      Remove the folders in O(runs_dir), too. With O(older_than_days) also old reports of C(verify.yml), except the
      newest of each cluster, and plans that were never started.
    type: bool
    default: false
  chosen: {description: The result of the step V(choose)., type: dict}
  log_limit: {description: "Upper bound for each collected log, in bytes.", type: int}
  excluded_file: {description: File on the controller that records the hosts that jobs excluded., type: path}
  record: {description: Print nothing., type: bool, default: false}
  verification:
    description: Name of a verification's folder in O(runs_dir), to pack that instead of a job.
    type: str
    default: ""
  file: {description: "The file to write, or its folder; by default it is in O(folder).", type: str, default: ""}
  folder: {description: The current folder., type: path}
  network: {description: "Job network, a CIDR or an interface; empty for the inventory's.", type: str}
  user: {description: The training user., type: str}
  root: {description: Folder of the software that the project installs., type: path}
  venvs: {description: Folder of the environments., type: path}
  ascend_root: {description: Folder of Ascend's software., type: path}
  limit_s: {description: Seconds that a node may take for an answer., type: float, default: 120}
attributes:
  check_mode:
    support: full
    description: V(clean) only prints what would be removed, and V(archive) writes no file.
"""

EXAMPLES = r"""
- name: Find the newest run of a job
  job_runs: {step: find, runs_dir: runs, job_name: digits}
  register: run

- name: List what runs now
  job_runs: {step: listing, runs_dir: runs, state: running}
  register: running

- name: Print the stacks
  job_runs: {step: stacks, run_dir: "{{ run.run_dir }}"}

- name: Choose jobs that ended a month ago
  job_runs:
    step: choose
    hosts: "{{ groups.compute }}"
    known_hosts: "{{ groups.all }}"
    runs_dir: runs
    state_dir: /var/lib/trainyard
    older_than_days: 30
  register: chosen

- name: Remove the chosen folders
  job_runs:
    step: clean
    runs_dir: runs
    chosen: "{{ chosen }}"
    log_limit: 16777216
    excluded_file: runs/.excluded-lab.json

- name: Collect what an issue needs
  job_runs:
    step: archive
    runs_dir: runs
    job_id: digits-20261120-101500-3f9c
    folder: /tmp
    network: ""
    user: train
    root: /opt/trainyard
    venvs: /opt/trainyard/venvs
    ascend_root: /usr/local/Ascend
"""

RETURN = r"""
job_id: {description: Name of the run., returned: find, type: str}
job_dir: {description: Its folder on the nodes., returned: find, type: str}
run_dir: {description: Its folder on the controller., returned: find, type: str}
over: {description: Whether its record has the end., returned: find, type: bool}
launching:
  description: Whether its launch had started nothing, and got the message to end.
  returned: find with O(stop)
  type: bool
note: {description: "The runs that still run, if there are several.", returned: find, type: str}
engine:
  description: The job's scheduler (C(kind), C(submit_host), C(engine_id), C(settings)); empty over ssh.
  returned: find
  type: dict
runs: {description: One dictionary for each run., returned: listing without O(compare), type: list}
text: {description: "The list, the comparison, or what to remove.", returned: listing and choose, type: str}
groups: {description: A line for each group of equal stacks and each silent node., returned: stacks, type: list}
file: {description: File in the run's folder with all stacks; empty in check mode., returned: stacks, type: str}
remove: {description: "By host, C(job_id) and C(job_dir) of each folder to remove.", returned: choose, type: dict}
path: {description: The archive., returned: archive, type: str}
files: {description: Names of the files in it., returned: archive, type: list, elements: str}
silent: {description: The nodes that gave no facts., returned: archive, type: list, elements: str}
hidden: {description: How many values C((hidden)) replaces., returned: archive, type: int}
objects: {description: Runs whose objects in Kubernetes are to be removed., returned: choose, type: list}
records: {description: Names of the folders in O(runs_dir) to remove., returned: choose, type: list}
"""
