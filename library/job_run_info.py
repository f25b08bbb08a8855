#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Find a run among those that this controller started."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: job_run_info
short_description: Find a run among those that this controller started
description:
  - Reads the plans in the folder of runs and returns where the run that is meant lives.
  - Fails with the names of the newest runs when there is no such run.
version_added: "0.1.0"
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
      - Without O(job_id), the newest run of this job is meant; without both, the newest run.
      - What a playbook ran for itself, such as a check of collectives, is meant by its O(job_id) alone.
    type: str
    default: ""
  must_name:
    description: Fail without O(job_id) and O(job_name), for what ends or removes something.
    type: bool
    default: false
extends_documentation_fragment: read_only
author:
  - trainyard
"""

EXAMPLES = r"""
- name: Find the newest run of a job
  job_run_info:
    runs_dir: runs
    job_name: digits
  register: run
"""

RETURN = r"""
run:
  description: The run.
  returned: success
  type: dict
  contains:
    job_id:
      description: Name of the run.
      type: str
    job_dir:
      description: Its folder on the nodes.
      type: str
    head:
      description: Host of rank 0.
      type: str
    hosts:
      description: All hosts of the run, in the order of their ranks.
      type: list
      elements: str
    rejoin_s:
      description: Seconds that a lost node may take to come back; 0 for a job without restarts.
      type: int
    over:
      description: Whether its record says how it ended; then nothing changes it any more.
      type: bool
    engine:
      description: The job's scheduler, C(kind), C(submit_host), C(engine_id), and what else its plan says of it.
      returned: when a scheduler runs the job
      type: dict
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard import record, runs
from ansible.module_utils.trainyard_node.exits import read_json
from ansible.module_utils.trainyard_node.run_folder import read_plans, scheduler_of


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "runs_dir": {"type": "path", "required": True},
            "job_id": {"type": "str", "default": ""},
            "job_name": {"type": "str", "default": ""},
            "must_name": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    params = module.params
    plans = read_plans(Path(params["runs_dir"]))
    plan, complaint = runs.find(
        plans, params["job_id"], params["job_name"], params["must_name"], params["runs_dir"]
    )
    if plan is None:
        module.fail_json(msg=complaint)
    run_dir = Path(params["runs_dir"], plan["job_id"])
    module.exit_json(
        changed=False,
        run={
            "job_id": plan["job_id"],
            "job_dir": plan["job_dir"],
            "head": plan["head"]["host"],
            "hosts": [node["host"] for node in plan["nodes"]],
            "over": record.is_final(record.read(read_json(run_dir / "summary.json"))),
            "rejoin_s": plan["rejoin_s"] if plan["max_restarts"] else 0,
            **({"engine": scheduler_of(plan, Path(params["runs_dir"]))} if "engine" in plan else {}),
        },
    )


if __name__ == "__main__":
    main()
