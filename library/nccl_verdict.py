#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Judge the NCCL of all nodes together."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: nccl_verdict
short_description: Judge the NCCL of all nodes together
description:
  - Finds nodes without NCCL or with one that cannot be loaded, versions other than wanted or than on the other nodes,
    headers of another version than the library, and libraries built with another CUDA.
  - Returns all faults and does not fail because of them.
version_added: "0.2.0"
options:
  states:
    description: What M(nccl_state) returned of each node.
    type: list
    elements: dict
    required: true
  wanted:
    description: By host, C(provider), C(version) and C(cuda); an empty one is only compared between the nodes.
    type: dict
    required: true
extends_documentation_fragment: read_only
author:
  - trainyard
"""

EXAMPLES = r"""
- name: Judge all nodes
  nccl_verdict:
    states: "{{ ansible_play_hosts | map('extract', hostvars, ['found', 'state']) }}"
    wanted:
      n1: {provider: network_repo, version: 2.21.5, cuda: "12.4"}
  delegate_to: localhost
  run_once: true
  register: verdict
"""

RETURN = r"""
findings:
  description: All faults, each with host, check, found, expected and action.
  returned: success
  type: list
  elements: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard.nvidia.nccl import judge


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "states": {"type": "list", "elements": "dict", "required": True},
            "wanted": {"type": "dict", "required": True},
        },
        supports_check_mode=True,
    )
    findings = judge(module.params["states"], module.params["wanted"])
    module.exit_json(changed=False, findings=[finding.as_dict() for finding in findings])


if __name__ == "__main__":
    main()
