#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Submit a job to Slurm, or cancel it."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: slurm_job
short_description: Submit a job to Slurm, or cancel it
description:
  - Runs on a host that submits. The job belongs to O(user).
version_added: "0.1.0"
options:
  state:
    description: V(submitted) hands the script to sbatch. V(cancelled) ends the job and waits until it has ended.
    type: str
    choices: [submitted, cancelled]
    required: true
  job_id:
    description: The job.
    type: str
    required: true
  engine_id:
    description: Slurm's number of the job, to cancel it.
    type: str
    default: ""
  script:
    description: The sbatch script.
    type: str
    default: ""
  user:
    description: The training user.
    type: str
    default: ""
attributes:
  check_mode:
    description: Can run in check mode; nothing is submitted or cancelled then.
    support: full
author:
  - trainyard
"""

EXAMPLES = r"""
- name: Submit a job
  slurm_job:
    state: submitted
    job_id: digits-20261121-101500
    script: "{{ lookup('ansible.builtin.file', 'runs/digits-20261121-101500/job.sbatch') }}"
    user: train
"""

RETURN = r"""
engine_id:
  description: Slurm's number of the job.
  returned: success
  type: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard_node.slurm import SlurmError
from ansible.module_utils.trainyard_node.slurm_job import end, submit


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["submitted", "cancelled"], "required": True},
            "job_id": {"type": "str", "required": True},
            "engine_id": {"type": "str", "default": ""},
            "script": {"type": "str", "default": ""},
            "user": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    params = module.params
    changed, engine_id = True, params["engine_id"]
    try:
        if params["state"] == "cancelled":
            changed = end(engine_id, params["user"], check=module.check_mode)
        else:
            engine_id = "" if module.check_mode else submit(params["script"], params["user"])
    except SlurmError as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=changed, engine_id=engine_id)


if __name__ == "__main__":
    main()
