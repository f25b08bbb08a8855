#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Judge the CUDA toolkits of all nodes together."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: cuda_toolkit_verdict
short_description: Judge the CUDA toolkits of all nodes together
description:
  - Finds toolkits that are missing or of another version than wanted, a default that leads elsewhere, and nodes whose
    toolkits differ from those of the others.
  - Needs no machine; run it on the controller, once for all nodes. Does not fail because of what it finds.
version_added: "0.2.0"
options:
  states:
    description: What M(cuda_toolkit_state) returned of each node.
    type: list
    elements: dict
    required: true
  plans:
    description: What M(cuda_toolkit_plan) returned as C(nodes).
    type: dict
    required: true
  told:
    description: Whether sshd must have been told of the default.
    type: bool
    default: false
extends_documentation_fragment: read_only
author:
  - trainyard
"""

EXAMPLES = r"""
- name: Judge all nodes
  cuda_toolkit_verdict:
    states: "{{ ansible_play_hosts | map('extract', hostvars, ['found', 'state']) }}"
    plans: "{{ plan.nodes }}"
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
from ansible.module_utils.trainyard.nvidia.cuda_verdict import judge


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "states": {"type": "list", "elements": "dict", "required": True},
            "plans": {"type": "dict", "required": True},
            "told": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    findings = judge(module.params["states"], module.params["plans"], module.params["told"])
    module.exit_json(changed=False, findings=[finding.as_dict() for finding in findings])


if __name__ == "__main__":
    main()
