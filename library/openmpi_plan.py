#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Plan on which nodes an Open MPI is built and to which it is copied."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: openmpi_plan
short_description: Plan on which nodes an Open MPI is built and to which it is copied
description:
  - One node of each operating system and architecture builds; the others get a copy. Where a node has it already, that
    one is copied.
  - Runs on the controller, reads nothing and changes nothing. Returns all faults of all nodes.
version_added: "0.2.0"
options:
  states:
    description: What M(openmpi_state) returned of each node, in inventory order.
    type: list
    elements: dict
    required: true
  wanted:
    description: What to build.
    type: dict
    required: true
    suboptions:
      version:
        description: Release.
        type: str
        required: true
      sha256:
        description: Of the archive with the source.
        type: str
        required: true
      prefix:
        description: Folder to install into.
        type: path
        required: true
      options:
        description: Arguments of C(configure), besides those for prefix, CUDA and UCX.
        type: list
        elements: str
        default: []
      cuda:
        description: C(auto), C(none), or the folder of the CUDA toolkit.
        type: str
        default: auto
      ucx:
        description: C(auto), C(none), or the folder of UCX.
        type: str
        default: auto
      min_free_mb:
        description: MB that must be free.
        type: int
        default: 0
extends_documentation_fragment: read_only
author:
  - trainyard
"""

EXAMPLES = r"""
- name: Plan who builds
  openmpi_plan:
    states: "{{ ansible_play_hosts | map('extract', hostvars, ['openmpi', 'state']) }}"
    wanted: {version: 4.1.8, sha256: "{{ sum }}", prefix: /opt/openmpi-4.1.8}
  delegate_to: localhost
  run_once: true
  register: plan
"""

RETURN = r"""
nodes:
  description: For each node C(action) (none, build or copy), C(source) (who has it or builds it) and C(record).
  returned: success
  type: dict
findings:
  description: All faults, each with host, check, found, expected and action.
  returned: success
  type: list
  elements: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard.software.openmpi import plan_builds


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "states": {"type": "list", "elements": "dict", "required": True},
            "wanted": {
                "type": "dict",
                "required": True,
                "options": {
                    "version": {"type": "str", "required": True},
                    "sha256": {"type": "str", "required": True},
                    "prefix": {"type": "path", "required": True},
                    "options": {"type": "list", "elements": "str", "default": []},
                    "cuda": {"type": "str", "default": "auto"},
                    "ucx": {"type": "str", "default": "auto"},
                    "min_free_mb": {"type": "int", "default": 0},
                },
            },
        },
        supports_check_mode=True,
    )
    nodes, findings = plan_builds(module.params["states"], module.params["wanted"])
    module.exit_json(changed=False, nodes=nodes, findings=[finding.as_dict() for finding in findings])


if __name__ == "__main__":
    main()
