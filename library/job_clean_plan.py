#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Decide which job folders are removed from which node; runs once, on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: job_clean_plan
short_description: Decide what ended jobs have left is removed from where
description:
  - Takes the folders of all nodes from M(job_folders_info). A job that runs on one of them keeps its folders on all.
  - Takes what schedulers say of their jobs, too. A job that waits or runs there stays, and one of which its scheduler
    says nothing.
  - Fails when the job that is named still runs or is nowhere. It touches no node.
version_added: "0.1.0"
options:
  hosts:
    description: The nodes.
    type: list
    elements: str
    required: true
  answers:
    description: What M(job_folders_info) returned on each of O(hosts).
    type: list
    elements: dict
    required: true
  runs:
    description: Runs of schedulers, from M(scheduler_runs_info).
    type: list
    elements: dict
    default: []
  scheduler_answers:
    description: What M(slurm_job_info) and M(kubernetes_job_info) returned for each of O(runs), with it as C(item).
    type: list
    elements: dict
    default: []
  job_id:
    description: The job whose folders are to be removed.
    type: str
    default: ""
  days:
    description: Instead of O(job_id), all jobs that ended more than so many days ago.
    type: float
  runs_dir:
    description: Folder of the runs on the controller.
    type: path
    required: true
  of_runs:
    description:
      - Whether what is kept in O(runs_dir) of these jobs is to go, too.
      - With O(days) also proofs (C(verify.yml)), but for the newest of each cluster, and plans that were never started.
      - What is kept of a job that may still run stays.
    type: bool
    default: false
extends_documentation_fragment: read_only
author:
  - trainyard
seealso:
  - module: job_folders_info
  - module: job_process
"""

EXAMPLES = r"""
- name: Choose jobs that ended a month ago
  job_clean_plan:
    hosts: "{{ groups.compute }}"
    answers: "{{ groups.compute | map('extract', hostvars, 'folders') }}"
    runs_dir: runs
    days: 30
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
remove:
  description: By host, C(job_id) and C(job_dir) of what M(job_process) with O(job_process#module:state=absent) gets.
  returned: success
  type: dict
  sample: {n1: [{job_id: digits-20261120-101500, job_dir: /var/lib/trainyard/jobs/digits-20261120-101500}]}
objects:
  description: Those of O(runs) whose objects in Kubernetes are removed.
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

import time
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard.cleaning import KUBERNETES, Folder, choose, describe, of_schedulers
from ansible.module_utils.trainyard.findings import render
from ansible.module_utils.trainyard.no_answer import reason
from ansible.module_utils.trainyard.runs import describe as describe_runs
from ansible.module_utils.trainyard.runs import may_go
from ansible.module_utils.trainyard_node.run_folder import kept_runs


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "hosts": {"type": "list", "elements": "str", "required": True},
            "answers": {"type": "list", "elements": "dict", "required": True},
            "runs": {"type": "list", "elements": "dict", "default": []},
            "scheduler_answers": {"type": "list", "elements": "dict", "default": []},
            "job_id": {"type": "str", "default": ""},
            "days": {"type": "float"},
            "runs_dir": {"type": "path", "required": True},
            "of_runs": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    params = module.params
    answers = dict(zip(params["hosts"], params["answers"]))
    nodes = {
        host: [Folder.from_dict(folder) for folder in answer["folders"]]
        for host, answer in answers.items()
        if "folders" in answer
    }
    said = {answer["item"]["job_id"]: answer for answer in params["scheduler_answers"]}
    left = {folder.job_id for folders in nodes.values() for folder in folders}
    runs = [run for run in params["runs"] if run["kind"] == "kubernetes" or run["job_id"] in left]
    schedulers, unknown = of_schedulers(runs, said, time.time())
    asked, days, runs_dir = {**nodes, **schedulers}, params["days"], Path(params["runs_dir"])
    kept = kept_runs(runs_dir, time.time()) if params["of_runs"] else []
    chosen, findings = choose(asked, params["job_id"], days, unknown, {run.name for run in kept})
    if findings:
        module.fail_json(msg=render(findings, "{count} {findings}: nothing was removed."))
    silent = {host: reason(answer) for host, answer in answers.items() if host not in nodes}
    go, stay = may_go(kept, asked, list(silent), params["job_id"], days, unknown)
    text = describe(chosen, silent, module.check_mode, unknown)
    if params["of_runs"]:
        text += "\n" + describe_runs(go, stay, str(runs_dir), module.check_mode)
    module.exit_json(
        changed=False,
        remove={
            host: [{"job_id": folder.job_id, "job_dir": folder.job_dir} for folder in folders]
            for host, folders in chosen.items()
            if folders and host in nodes
        },
        objects=[run for run in runs if run["job_id"] in {folder.job_id for folder in chosen.get(KUBERNETES, ())}],
        records=[run.name for run in go],
        text=text,
    )


if __name__ == "__main__":
    main()
