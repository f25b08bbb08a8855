#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Start, stop or remove one node's part of a job."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: job_process
short_description: Start, stop or remove one node's part of a job
description:
  - Starts the processes that the plan has for this node, under the training user, supervised by systemd in transient
    units within one slice for the job. Where PID 1 is not systemd, or the module does not run as root, a monitor
    process supervises them instead, with the same files and the same results.
  - With the processes runs a monitor, which ends them when any process of the job on any node fails, when a node goes
    silent, or when the job's time is up.
  - Stopping ends exactly the processes of this job, and fails when one of them stays.
version_added: "0.1.0"
options:
  state:
    description:
      - V(started) starts the processes; it changes nothing when the job already runs here.
      - V(stopped) ends them and keeps the job's folder with its logs.
      - V(absent) ends them and removes the folder.
    type: str
    choices: [started, stopped, absent]
    default: started
  job_id:
    description: The job.
    type: str
    required: true
  job_dir:
    description: The job's folder on the node.
    type: path
    required: true
  slice:
    description: The node's slice of the plan, Needed for O(state=started).
    type: dict
  files:
    description:
      - Files of the plan that every node gets, as they stand there, C(path), C(content), C(mode) and C(sha256).
      - The job is not started where one of them, or of the slice's own, does not read back with its C(sha256).
    type: list
    elements: dict
    default: []
  source_archive:
    description: The job's source as base64 of a tar archive. Needed for O(state=started).
    type: str
  secret_env:
    description: Environment variables that stand in no plan, log or argument list.
    type: dict
    default: {}
  secret_files:
    description:
      - Files in the job's folder that only the training user can read, by name relative to it, base64.
      - They are removed when the job ends.
    type: dict
    default: {}
  token:
    description: Secret by which the monitors of one job know each other. Needed for O(state=started).
    type: str
  user:
    description: The training user. Needed for O(state=started).
    type: str
  logs:
    description: Return the logs, too.
    type: bool
    default: false
  log_limit:
    description: Greatest number of bytes to return of each log; of a longer log the end is returned.
    type: int
    default: 4194304
attributes:
  check_mode:
    description: Can run in check mode and return what would change.
    support: full
author:
  - trainyard
"""

EXAMPLES = r"""
- name: Start this node's part of the job
  job_process:
    state: started
    job_id: "{{ plan.job_id }}"
    job_dir: "{{ plan.plan.job_dir }}"
    slice: "{{ plan.slices[inventory_hostname] }}"
    files: "{{ plan.plan.files }}"
    source_archive: "{{ plan.source_archive }}"
    token: "{{ token }}"
    user: train

- name: Stop it
  job_process:
    state: stopped
    job_id: digits-20261120-101500
    job_dir: /var/lib/trainyard/jobs/digits-20261120-101500
"""

RETURN = r"""
known:
  description: Whether the job's folder is on this node.
  returned: always
  type: bool
monitor_alive:
  description: Whether the job's monitor runs.
  returned: always
  type: bool
processes:
  description: Name, ranks and end of every process; RV(ignore:exit) is null while it runs.
  returned: always
  type: list
  elements: dict
  sample:
    - {name: rank0, ranks: [0], exit: {exit_code: 1, signal: null, result: exit-code, time: 1790000000.0}}
left:
  description: Number of processes that carry the job's id.
  returned: always
  type: int
monitor:
  description: What the node's monitor wrote last.
  returned: always
  type: dict
cluster:
  description: On the head node, what its monitor wrote last about the whole job.
  returned: always
  type: dict
logs:
  description: Contents of the log files by name, base64.
  returned: when O(logs) is true
  type: dict
"""

import base64
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard_node import job as jobs
from ansible.module_utils.trainyard_node import procs


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["started", "stopped", "absent"], "default": "started"},
            "job_id": {"type": "str", "required": True},
            "job_dir": {"type": "path", "required": True},
            "slice": {"type": "dict"},
            "files": {"type": "list", "elements": "dict", "default": []},
            "source_archive": {"type": "str", "no_log": True},
            "secret_env": {"type": "dict", "default": {}, "no_log": True},
            "secret_files": {"type": "dict", "default": {}, "no_log": True},
            "token": {"type": "str", "no_log": True},
            "user": {"type": "str"},
            "logs": {"type": "bool", "default": False},
            "log_limit": {"type": "int", "default": 4 << 20},
        },
        required_if=[("state", "started", ("slice", "source_archive", "token", "user"))],
        supports_check_mode=True,
    )
    params = module.params
    job_id, job_dir = params["job_id"], Path(params["job_dir"])
    alive = procs.monitor_alive(job_dir)
    try:
        if params["state"] == "started":
            changed = not alive
            if changed and not module.check_mode:
                spec = {
                    **params["slice"],
                    "files": [*params["files"], *params["slice"].get("files", ())],
                    "token": params["token"],
                    "secret_env": {key: str(value) for key, value in params["secret_env"].items()},
                }
                files = {name: base64.b64decode(content) for name, content in params["secret_files"].items()}
                jobs.start(job_dir, spec, base64.b64decode(params["source_archive"]), params["user"], files)
        elif module.check_mode:
            changed = bool(procs.of_job(job_id)) or (params["state"] == "absent" and job_dir.is_dir())
        elif params["state"] == "stopped":
            changed = jobs.stop(job_dir, job_id)
        else:
            changed = jobs.remove(job_dir, job_id)
    except jobs.JobError as error:
        module.fail_json(msg=str(error))
    result = jobs.status(job_dir, job_id)
    if params["logs"]:
        result["logs"] = jobs.read_logs(job_dir, params["log_limit"])
    module.exit_json(changed=changed, **result)


if __name__ == "__main__":
    main()
