#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Ask Slurm how a job is."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: slurm_job_info
short_description: Ask Slurm how a job is
description:
  - Returns the state in the project's words, Slurm's reason, and a line for whoever watches.
  - Asks slurmctld, and sacct where that has forgotten the job. Where there is no accounting the end that the job's own
    script has written is taken, if it is on this host.
version_added: "0.1.0"
options:
  job_id:
    description: The job.
    type: str
    required: true
  job_dir:
    description: The job's folder on the nodes.
    type: path
    required: true
  engine_id:
    description: Slurm's number of the job.
    type: str
    required: true
  world_size:
    description: Number of ranks.
    type: int
    default: 0
  rank_log:
    description: Name of a rank's log, with C({rank}) in it.
    type: str
    default: rank_{rank}.log
  progress_pattern:
    description: Regular expression with named groups that reads metrics from the log of rank 0.
    type: str
    default: ""
  user:
    description: The training user, whose job it is.
    type: str
    default: ""
  login_host:
    description: This host's name in the inventory.
    type: str
    default: ""
  shared:
    description: Whether all nodes share the job's folder with this host.
    type: bool
    default: false
extends_documentation_fragment: read_only
author:
  - trainyard
"""

EXAMPLES = r"""
- name: Ask how a job is
  slurm_job_info:
    job_id: digits-20261121-101500
    job_dir: /var/lib/trainyard/jobs/digits-20261121-101500
    engine_id: "42"
"""

RETURN = r"""
state:
  description: V(pending), V(running), V(succeeded), V(failed), V(timed_out), V(stopped) or V(lost).
  returned: success
  type: str
reason:
  description: Slurm's own word for why.
  returned: success
  type: str
line:
  description: What a watcher prints.
  returned: success
  type: str
log_hosts:
  description: Hosts that have logs of the job.
  returned: success
  type: list
  elements: str
hosts:
  description: Nodes of the allocation, in Slurm's order.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard_node.slurm import SlurmError
from ansible.module_utils.trainyard_node.slurm_job import job_state


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "job_id": {"type": "str", "required": True},
            "job_dir": {"type": "path", "required": True},
            "engine_id": {"type": "str", "required": True},
            "world_size": {"type": "int", "default": 0},
            "rank_log": {"type": "str", "default": "rank_{rank}.log"},
            "progress_pattern": {"type": "str", "default": ""},
            "user": {"type": "str", "default": ""},
            "login_host": {"type": "str", "default": ""},
            "shared": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    try:
        module.exit_json(changed=False, **job_state(module.params))
    except SlurmError as error:
        module.fail_json(msg=f"Slurm does not say how job {module.params['engine_id']} is: {error}")


if __name__ == "__main__":
    main()
