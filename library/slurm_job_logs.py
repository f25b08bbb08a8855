#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Read the logs of a job of Slurm on one host."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: slurm_job_logs
short_description: Read the logs of a job of Slurm on one host
description:
  - Returns the logs in the job's folder, and how the tasks ended that ran here; nothing where there is no such folder.
version_added: "0.1.0"
options:
  job_dir:
    description: The job's folder on the node.
    type: path
    required: true
  log_limit:
    description: Greatest number of bytes of each log; of a longer log the end is brought.
    type: int
    default: 4194304
extends_documentation_fragment: read_only
author:
  - trainyard
"""

EXAMPLES = r"""
- name: Read the logs
  slurm_job_logs:
    job_dir: /var/lib/trainyard/jobs/digits-20261121-101500
"""

RETURN = r"""
logs:
  description: Contents of the log files by name, base64.
  returned: always
  type: dict
exits:
  description: How tasks ended, each with process, rank, host, exit_code or signal, result and time.
  returned: always
  type: list
  elements: dict
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard_node.job import read_logs
from ansible.module_utils.trainyard_node.slurm_job import read_exits


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "job_dir": {"type": "path", "required": True},
            "log_limit": {"type": "int", "default": 4 << 20},
        },
        supports_check_mode=True,
    )
    job_dir = Path(module.params["job_dir"])
    module.exit_json(
        changed=False,
        logs=read_logs(job_dir, module.params["log_limit"]) if job_dir.is_dir() else {},
        exits=read_exits(job_dir),
    )


if __name__ == "__main__":
    main()
