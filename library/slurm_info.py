#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Read what a Slurm cluster is."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: slurm_info
short_description: Read what a Slurm cluster is, from a host that submits
description:
  - Returns the version, the parts of the configuration that decide about a job, partitions and nodes.
  - Never fails; where Slurm does not answer, that is a finding.
version_added: "0.1.0"
options:
  user:
    description: The training user.
    type: str
    default: ""
  folder:
    description: Folder below which jobs have theirs.
    type: path
    default: ""
  shared:
    description: >-
      Whether the nodes share O(folder) with this host, so that it says also what can be made there. Otherwise a folder
      that this host lacks is no fault: the nodes have their own.
    type: bool
    default: false
extends_documentation_fragment: read_only
author:
  - trainyard
"""

EXAMPLES = r"""
- name: Ask Slurm what it is
  slurm_info:
  register: slurm
"""

RETURN = r"""
facts:
  description: C(version), C(config), C(partitions) and C(nodes) as scontrol shows them, C(mpi) plugins of srun.
  returned: always
  type: dict
findings:
  description: Why there are no facts, each with host, check, found, expected and action.
  returned: always
  type: list
  elements: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard_node.slurm_facts import probe


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "user": {"type": "str", "default": ""},
            "folder": {"type": "path", "default": ""},
            "shared": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    module.exit_json(changed=False, **probe(**module.params))


if __name__ == "__main__":
    main()
