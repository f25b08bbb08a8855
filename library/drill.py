#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin drill."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: drill
short_description: Run a job several times, to find what it survives or where it fails
description: One step of C(playbooks/drill.yml) or C(playbooks/bisect.yml). The examples have the options of each step.
options:
  step:
    description:
      - V(plan) checks the settings of the drill, and that the job takes the folder of its checkpoints from the job
        file. It touches no node.
      - V(folder) makes or removes the folder of a drill's checkpoints on all nodes of a run, as the training user. It
        removes nothing but a folder whose name is that of a drill. A folder that cannot be made is a finding, and one
        that cannot be removed a warning.
      - V(watch) polls the head node until the run has reached its step. In the runs V(rank) and V(node) it kills
        processes on the last node, once a complete checkpoint is there. It returns at once if the command is
        interrupted.
      - V(record) reads the folder of a run that has ended. After the run V(stopped) it asks all nodes for their newest
        checkpoints. Findings are about an undisturbed run that cannot be compared with others.
      - V(report) compares the runs, writes C(drill.html) and C(drill.json) into the folder of the undisturbed one, and
        prints the result. It fails where a check failed.
      - V(bisect) reads how the job ran on parts of its nodes, prints the last round, and returns the next one.
    type: str
    choices: [plan, folder, watch, record, report, bisect]
    required: true
  job: {description: The variables of the job., type: dict}
  settings: {description: "The variables C(drill_*), or C(bisect_*).", type: dict}
  run_dir: {description: Folder of the run on the controller., type: path}
  runs_dir: {description: Folder on the controller that holds the folders of all runs., type: path}
  path: {description: The folder on the nodes., type: str}
  state: {description: Whether it is made or removed., type: str, choices: [present, absent]}
  user: {description: The training user., type: str}
  run: {description: The run., type: str, choices: [undisturbed, stopped, resumed, rank, node]}
  drill: {description: RV(drill) of the step V(plan)., type: dict}
  watched: {description: Result of the step V(watch); empty without one., type: dict}
  runs: {description: RV(record) of each run., type: list, elements: dict}
  hosts: {description: "The nodes of the job, in the order of their ranks.", type: list, elements: str}
  jobs: {description: "The runs so far: C(hosts), C(run_dir), C(refused), C(round).", type: list, elements: dict}
  id: {description: RV(id) of the first call., type: str, default: ""}
  report: {description: Report what was found; fails where nodes are named., type: bool, default: false}
attributes:
  check_mode:
    support: partial
    description: V(plan), V(record) and V(bisect) change nothing. The others are not called.
"""

EXAMPLES = r"""
- name: Plan the drill
  drill:
    step: plan
    job: {job_name: mine, job_command: [python, train.py, --dir=/shared/mine], job_checkpoints: /shared/mine}
    settings: {drill_steps: 20, drill_timeout: 1800}
  register: planned

- name: Remove the checkpoints of the drill
  drill:
    step: folder
    run_dir: runs/mine-20261126-101500-3f9c
    path: /shared/mine.drill-20261126-101500-3f9c
    user: train
    state: absent

- name: Watch the run
  drill: {step: watch, run_dir: runs/mine-20261126-101500-3f9c, run: rank, drill: "{{ planned.drill }}"}
  register: watched

- name: Record the run
  drill:
    step: record
    run_dir: runs/mine-20261126-101500-3f9c
    run: stopped
    drill: "{{ planned.drill }}"
    user: train
    watched: "{{ watched }}"

- name: Report
  drill: {step: report, drill: "{{ planned.drill }}", runs: "{{ records }}", runs_dir: runs}

- name: Decide where the job runs first
  drill:
    step: bisect
    job: {job_name: mine, job_command: [python, train.py], job_min_nodes: 0}
    settings: {bisect_timeout: 600, bisect_args: [], bisect_min_nodes: 0, bisect_multiple: 1}
    hosts: [n1, n2, n3, n4]
    jobs: []
"""

RETURN = r"""
findings: {description: "Why the job cannot be drilled, or not any further.", returned: plan and record, type: list}
drill: {description: The settings of the drill; empty with findings., returned: plan, type: dict}
runs:
  description: The next runs in their order, each with C(changes) of the job, and C(run), or C(hosts) and C(folder).
  returned: plan and bisect
  type: list
killed: {description: "C(host), C(ranks) and number of C(processes) that were killed.", returned: watch, type: dict}
why: {description: "Why the run was given up, or an empty string.", returned: watch, type: str}
record: {description: Record of the run., returned: record, type: dict}
over: {description: Whether the drill ends here., returned: record, type: bool}
id: {description: Part of the name of the folder for checkpoints., returned: bisect, type: str}
state: {description: "V(pass), V(fail) or V(unknown).", returned: "report, and bisect with O(report)", type: str}
headline: {description: The result in a line., returned: report, type: str}
"""
