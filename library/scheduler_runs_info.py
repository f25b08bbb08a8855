#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""List the runs that a scheduler has taken; runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: scheduler_runs_info
short_description: List the runs that Slurm or Kubernetes has taken, and of which something may be left there
description:
  - Reads the folders of the runs on the controller. It asks no scheduler, and changes nothing.
version_added: "0.1.0"
options:
  runs_dir:
    description: Folder of the runs on the controller.
    type: path
    required: true
  job_id:
    description: Only this run.
    type: str
    default: ""
  days:
    description: Only runs that were planned more than so many days ago; one that is younger has not ended before.
    type: float
    default: 0
extends_documentation_fragment: read_only
author:
  - trainyard
seealso:
  - module: job_clean_plan
"""

EXAMPLES = r"""
- name: List the runs of schedulers
  scheduler_runs_info:
    runs_dir: runs
    days: 30
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
runs:
  description: The runs, oldest first.
  returned: success
  type: list
  elements: dict
  contains:
    job_id:
      description: Name of the run.
      type: str
    job_dir:
      description: Its folder on the nodes; empty where it has none.
      type: str
    kind:
      description: V(slurm) or V(kubernetes).
      type: str
    submit_host:
      description: Host from which it was submitted.
      type: str
    engine_id:
      description: What the scheduler calls it.
      type: str
    settings:
      description: What the scheduler's modules need to know of it.
      type: dict
    planned:
      description: When it was planned, in seconds since the epoch.
      type: float
slurm_hosts:
  description: The hosts from which those of Slurm were submitted.
  returned: success
  type: list
  elements: str
"""

import time
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard.cleaning import DAY_S
from ansible.module_utils.trainyard_node.run_folder import scheduler_runs


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "runs_dir": {"type": "path", "required": True},
            "job_id": {"type": "str", "default": ""},
            "days": {"type": "float", "default": 0},
        },
        supports_check_mode=True,
    )
    params = module.params
    latest = time.time() - params["days"] * DAY_S
    runs = [
        run
        for run in scheduler_runs(Path(params["runs_dir"]))
        if params["job_id"] in ("", run["job_id"]) and run["planned"] <= latest
    ]
    slurm_hosts = sorted({run["submit_host"] for run in runs if run["kind"] == "slurm"})
    module.exit_json(changed=False, runs=runs, slurm_hosts=slurm_hosts)


if __name__ == "__main__":
    main()
