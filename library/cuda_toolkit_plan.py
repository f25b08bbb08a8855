#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Plan which CUDA toolkits are to be installed and removed on which node, and find what stops it."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: cuda_toolkit_plan
short_description: Plan which CUDA toolkits are to be installed and removed on which node
description:
  - Compares what each node has with what is wanted there. Finds wrong input, metapackages that bring a driver, a host
    compiler that is too new for a toolkit, too little room, and a default that would be removed.
  - Needs no machine; run it on the controller, once for all nodes.
version_added: "0.2.0"
options:
  nodes:
    description:
      - Each node's C(state), as M(cuda_toolkit_state) returns it, the C(records) wanted there (the role's
        C(cuda_toolkit_versions)), the C(default) and the versions to be C(absent).
    type: list
    elements: dict
    required: true
  wheels:
    description: Pins of the wheels that make a toolkit, by release.
    type: dict
    default: {}
  min_free_mib:
    description: MiB that a toolkit needs, by provider.
    type: dict
    default: {}
  host_compiler:
    description: Host compiler that nvcc is to use. Empty for the system's.
    type: str
    default: ""
  manage_system:
    description: Whether packages may be installed.
    type: bool
    default: true
extends_documentation_fragment: read_only
author:
  - trainyard
"""

EXAMPLES = r"""
- name: Plan what to install
  cuda_toolkit_plan:
    nodes:
      - state: "{{ found.state }}"
        records: [{provider: network_repo, version: "12.4.1"}]
        default: ""
        absent: []
  delegate_to: localhost
  run_once: true
  register: plan
"""

RETURN = r"""
nodes:
  description:
    - For each host C(toolkits) (the records with C(home), C(packages), C(wheels) and whether to C(install) them),
      C(remove) (C(provider), C(version), C(home)) and the home that is to be the C(default).
  returned: success
  type: dict
findings:
  description: All faults, each with host, check, found, expected and action.
  returned: success
  type: list
  elements: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard.nvidia.cuda_plan import plan_toolkits


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "nodes": {"type": "list", "elements": "dict", "required": True},
            "wheels": {"type": "dict", "default": {}},
            "min_free_mib": {"type": "dict", "default": {}},
            "host_compiler": {"type": "str", "default": ""},
            "manage_system": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    given = module.params
    wanted = {
        "pins": given["wheels"],
        "min_free_mib": given["min_free_mib"],
        "host_compiler": given["host_compiler"],
        "manage_system": given["manage_system"],
    }
    nodes, findings = plan_toolkits(given["nodes"], wanted)
    module.exit_json(changed=False, nodes=nodes, findings=[finding.as_dict() for finding in findings])


if __name__ == "__main__":
    main()
