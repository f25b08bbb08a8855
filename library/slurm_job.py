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
from ansible.module_utils.trainyard.slurm_state import fields, read_state
from ansible.module_utils.trainyard_node.slurm import SlurmError, call, show, wait_until_over

# Slurm sends SIGKILL KillWait (30 s) after SIGTERM, and then waits for what does not end.
_PATIENCE_S = 90


def is_over(records: list[str]) -> bool:
    """Whether the job has ended, also where it is forgotten by now."""
    return all(read_state(fields(record).get("JobState", "")) not in ("pending", "running") for record in records)


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
    engine_id = params["engine_id"]
    try:
        if params["state"] == "submitted":
            if module.check_mode:
                module.exit_json(changed=True, engine_id="")
            # `42`, or `42;cluster` where there are several.
            said = call(["sbatch", "--parsable"], params["user"], params["script"]).strip().splitlines()[-1]
            module.exit_json(changed=True, engine_id=said.split(";")[0])
        if is_over(show("job", engine_id)):
            module.exit_json(changed=False, engine_id=engine_id)
        if not module.check_mode:
            call(["scancel", engine_id], params["user"])
            if not wait_until_over(engine_id, is_over, _PATIENCE_S):
                module.fail_json(
                    msg=f"Slurm job {engine_id} has not ended {_PATIENCE_S} s after scancel. Look at squeue and at "
                    "slurmd's log on its nodes, then run stop.yml again."
                )
        module.exit_json(changed=True, engine_id=engine_id)
    except SlurmError as error:
        verb = "take the job" if params["state"] == "submitted" else f"cancel job {engine_id}"
        module.fail_json(msg=f"Slurm does not {verb}: {error}")


if __name__ == "__main__":
    main()
