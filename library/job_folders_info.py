#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""List the job folders of one node."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: job_folders_info
short_description: List the job folders of one node, and whether anything of them still runs
description:
  - Returns a record for each folder that M(job_process) made and that the calling user may read.
  - Reads only.
version_added: "0.1.0"
options:
  state_dir:
    description: Folder on the node that holds C(jobs/).
    type: path
    required: true
  of_schedulers:
    description: Folders that jobs of a scheduler may have on the node, where M(job_process) has not made them.
    type: list
    elements: path
    default: []
extends_documentation_fragment: read_only
author:
  - trainyard
seealso:
  - module: job_clean_plan
"""

EXAMPLES = r"""
- name: List the job folders
  job_folders_info:
    state_dir: /var/lib/trainyard
  register: folders
"""

RETURN = r"""
folders:
  description: The job folders, by name.
  returned: always
  type: list
  elements: dict
  contains:
    job_id:
      description: The job.
      type: str
    job_dir:
      description: Its folder on the node.
      type: str
    age_s:
      description: Seconds since the job was started here or its monitor last wrote.
      type: float
    running:
      description: Whether its monitor or any process of it runs here.
      type: bool
    size_mib:
      description: Size of its files in MiB.
      type: int
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard_node.job import list_folders


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "state_dir": {"type": "path", "required": True},
            "of_schedulers": {"type": "list", "elements": "path", "default": []},
        },
        supports_check_mode=True,
    )
    others = [Path(folder) for folder in module.params["of_schedulers"]]
    module.exit_json(changed=False, folders=list_folders(Path(module.params["state_dir"], "jobs"), others))


if __name__ == "__main__":
    main()
