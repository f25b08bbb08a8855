#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Plan a job for a scheduler; runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: engine_plan
short_description: Plan a job that Slurm or Kubernetes runs
description:
  - Checks the job file, renders what is submitted, and makes the folder of a new run with C(plan.json) and these files.
  - Returns all findings instead where there are any, and makes no folder then.
  - Runs once, on the controller.
version_added: "0.1.0"
options:
  job:
    description: The C(job_*) variables of the job file, those of the scheduler among them.
    type: dict
    required: true
  given:
    description: Names of all variables that begin with C(job_).
    type: list
    elements: str
    default: []
  facts:
    description: What the scheduler is, as its own module found.
    type: dict
    default: {}
  hosts:
    description: Hosts of the inventory that O(job) chooses.
    type: list
    elements: str
    default: []
  known_hosts:
    description: All hosts of the inventory.
    type: list
    elements: str
    default: []
  node_env:
    description: The host variable C(job_node_env) of each host of O(hosts) that has it; Slurm's scheduler honours it.
    type: dict
    default: {}
  submit_host:
    description: Host that submits the job; empty where the inventory has none.
    type: str
    required: true
  runs_dir:
    description: Folder on the controller that holds the folders of all runs.
    type: path
    required: true
  state_dir:
    description: Folder on the nodes below which jobs have theirs.
    type: path
    required: true
  user:
    description: The training user.
    type: str
    default: ""
  asked_by:
    description: The playbook that wants the job; one that runs it for itself gives its own name.
    type: str
    default: launch.yml
attributes:
  check_mode:
    description: Can run in check mode; the plan is written then too, in place of that of the check before.
    support: full
author:
  - trainyard
"""

EXAMPLES = r"""
- name: Plan a job for Slurm
  engine_plan:
    job: {job_name: digits, job_scheduler: slurm, job_launcher: torchrun, job_nodes: 2, job_command: [python, train.py]}
    submit_host: login1
    runs_dir: runs
    state_dir: /var/lib/trainyard
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
findings:
  description: All faults, each with host, check, found, expected and action.
  returned: always
  type: list
  elements: dict
job_id:
  description: Name of this run and of its folder.
  returned: when there is a plan
  type: str
run_dir:
  description: Folder of this run on the controller.
  returned: when there is a plan
  type: str
plan:
  description: The plan as it stands in C(plan.json).
  returned: when there is a plan
  type: dict
files:
  description: What is submitted, by name.
  returned: when there is a plan
  type: dict
text:
  description: The plan for reading.
  returned: when there is a plan
  type: str
"""

import json
import time
from dataclasses import replace
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard import job as jobs
from ansible.module_utils.trainyard import schedulers
from ansible.module_utils.trainyard.runs import USER
from ansible.module_utils.trainyard.schedulers.records import Source, Where
from ansible.module_utils.trainyard_node.run_folder import forget_checked, new_run, pack, source_files


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "job": {"type": "dict", "required": True},
            "given": {"type": "list", "elements": "str", "default": []},
            "facts": {"type": "dict", "default": {}},
            "hosts": {"type": "list", "elements": "str", "default": []},
            "known_hosts": {"type": "list", "elements": "str", "default": []},
            "node_env": {"type": "dict", "default": {}},
            "submit_host": {"type": "str", "required": True},
            "runs_dir": {"type": "path", "required": True},
            "state_dir": {"type": "path", "required": True},
            "user": {"type": "str", "default": ""},
            "asked_by": {"type": "str", "default": USER},
        },
        supports_check_mode=True,
    )
    params = module.params
    findings = jobs.unknown_keys(params["given"])
    job, wrong = schedulers.parse(params["job"])
    findings += wrong
    if job is None:
        module.exit_json(changed=False, findings=[finding.as_dict() for finding in findings])
    folder = Path(job.source) if job.source else None
    files = source_files(folder) if folder else []
    archive = pack(folder, files) if folder and files else pack(Path(), [])
    source = Source(files, archive)
    created = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    where = Where(
        job_id="unnamed",
        created=created,
        submit_host=params["submit_host"],
        state_dir=params["state_dir"],
        user=params["user"],
        hosts=tuple(params["hosts"]),
        known=tuple(params["known_hosts"]),
        node_env=params["node_env"],
    )
    plan, wrong = schedulers.plan(job, params["job"], params["facts"], source, where)
    findings += wrong
    if plan is None or findings:
        module.exit_json(changed=False, findings=[finding.as_dict() for finding in findings])
    job_id, run_dir = new_run(Path(params["runs_dir"]), job.name)
    plan, _ = schedulers.plan(job, params["job"], params["facts"], source, replace(where, job_id=job_id))
    if plan is None:
        raise AssertionError("a plan does not depend on the job id")
    written = {**plan.as_dict(), "asked_by": params["asked_by"], "check": module.check_mode}
    (run_dir / "plan.json").write_text(json.dumps(written, indent=2) + "\n")
    (run_dir / "source.tar.gz").write_bytes(archive)
    if module.check_mode:
        forget_checked(run_dir.parent, job.name, job_id)
    for name, content in plan.submitted.items():
        (run_dir / name).write_text(content)
    module.exit_json(
        changed=True,
        findings=[],
        job_id=job_id,
        run_dir=str(run_dir),
        plan=written,
        files=dict(plan.submitted),
        text=plan.describe(),
    )


if __name__ == "__main__":
    main()
