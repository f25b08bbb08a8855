#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Tell how one node's part of a job is."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: job_process_info
short_description: Tell how one node's part of a job is
description:
  - Returns the state of the job's processes on this node, on the head node that of the whole job, and on request logs.
  - Reads only.
version_added: "0.1.0"
options:
  job_id:
    description: The job.
    type: str
    required: true
  job_dir:
    description: The job's folder on the node.
    type: path
    required: true
  wait:
    description: Seconds to wait for the end of the job before returning.
    type: float
    default: 0
  logs:
    description: Return the logs, too.
    type: bool
    default: false
  log_limit:
    description: Greatest number of bytes to return of each log; of a longer log the end is returned.
    type: int
    default: 4194304
extends_documentation_fragment: read_only
author:
  - trainyard
seealso:
  - module: job_process
"""

EXAMPLES = r"""
- name: How is the job
  job_process_info:
    job_id: digits-20261120-101500
    job_dir: /var/lib/trainyard/jobs/digits-20261120-101500
  register: job
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
  description: Name, ranks and end of every process, as M(job_process) returns them.
  returned: always
  type: list
  elements: dict
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
line:
  description: On the head node, the progress line.
  returned: on the head node
  type: str
  sample: 0:00:12   4/4 ranks running   step 40/200   loss 0.1234
restarts:
  description: On the head node, a line for each restart so far.
  returned: on the head node
  type: list
  elements: str
  sample: ["0:00:31   rank 3 on n4: killed by SIGKILL, so the whole job starts again"]
logs:
  description: Contents of the log files by name, base64.
  returned: when O(logs) is true
  type: dict
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard.progress import progress_line
from ansible.module_utils.trainyard.restarts import restart_text
from ansible.module_utils.trainyard_node import job as jobs


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "job_id": {"type": "str", "required": True},
            "job_dir": {"type": "path", "required": True},
            "wait": {"type": "float", "default": 0},
            "logs": {"type": "bool", "default": False},
            "log_limit": {"type": "int", "default": 4 << 20},
        },
        supports_check_mode=True,
    )
    job_id, job_dir = module.params["job_id"], Path(module.params["job_dir"])
    jobs.wait(job_dir, module.params["wait"])
    result = jobs.status(job_dir, job_id)
    cluster = result["cluster"]
    if cluster:
        result["line"] = progress_line(
            cluster["ranks_running"],
            cluster["world_size"],
            cluster["elapsed_s"],
            cluster["metrics"],
            # A monitor of an older version says nothing of it.
            cluster.get("loss_not_a_number"),
        )
        result["restarts"] = [restart_text(restart) for restart in cluster["restarts"]["history"]]
    if module.params["logs"]:
        result["logs"] = jobs.read_logs(job_dir, module.params["log_limit"])
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
