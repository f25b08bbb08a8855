#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Plan on which nodes nccl-tests are built, for which GPUs, and to which nodes they are copied."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: nccl_tests_plan
short_description: Plan on which nodes nccl-tests are built, and to which they are copied
description:
  - One node of each operating system, architecture and CUDA builds; the others get a copy. Where a node has the very
    same already, that one is copied.
  - Runs on the controller, reads nothing and changes nothing. Returns all faults of all nodes.
version_added: "0.2.0"
options:
  states:
    description: >-
      What M(nccl_tests_state) returned of each node, in inventory order, with C(gpus): a list of the node's GPUs, each
      with C(name), C(generation) and C(device_id).
    type: list
    elements: dict
    required: true
  wanted:
    description: What to build.
    type: dict
    required: true
    suboptions:
      source:
        description: The commit or sha256 that says which source it is.
        type: str
        required: true
      prefix:
        description: Folder to install into.
        type: path
        required: true
      suffix:
        description: End of the programs' names, make's C(NAME_SUFFIX).
        type: str
        default: _mpi
      options:
        description: Further variables of C(make).
        type: list
        elements: str
        default: []
      gencode:
        description: C(auto) for the GPUs of the nodes, or flags of nvcc.
        type: str
        default: auto
      min_free_mb:
        description: MB that must be free.
        type: int
        default: 0
      installs:
        description: Whether tools that a build needs may be installed.
        type: bool
        default: true
extends_documentation_fragment: read_only
author:
  - trainyard
seealso:
  - module: nccl_tests_state
"""

EXAMPLES = r"""
- name: Plan who builds
  nccl_tests_plan:
    states: "{{ ansible_play_hosts | map('extract', hostvars, 'nccl_tests_seen') }}"
    wanted:
      source: "commit {{ commit }}"
      prefix: /opt/trainyard/nccl-tests
  delegate_to: localhost
  run_once: true
  register: plan
"""

RETURN = r"""
nodes:
  description: >-
    For each node C(action) (none, build or copy), C(source) (who has it or builds it), C(record), C(reason) (what has
    changed) and C(library_path) (where programs find their libraries). Empty where a node lacks what it is built with.
  returned: success
  type: dict
findings:
  description: All faults, each with host, check, found, expected and action.
  returned: success
  type: list
  elements: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard.nvidia.nccl_tests import plan_builds


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "states": {"type": "list", "elements": "dict", "required": True},
            "wanted": {
                "type": "dict",
                "required": True,
                "options": {
                    "source": {"type": "str", "required": True},
                    "prefix": {"type": "path", "required": True},
                    "suffix": {"type": "str", "default": "_mpi"},
                    "options": {"type": "list", "elements": "str", "default": []},
                    "gencode": {"type": "str", "default": "auto"},
                    "min_free_mb": {"type": "int", "default": 0},
                    "installs": {"type": "bool", "default": True},
                },
            },
        },
        supports_check_mode=True,
    )
    nodes, findings = plan_builds(module.params["states"], module.params["wanted"])
    module.exit_json(changed=False, nodes=nodes, findings=[finding.as_dict() for finding in findings])


if __name__ == "__main__":
    main()
