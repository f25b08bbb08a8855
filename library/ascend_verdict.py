#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Judge Ascend devices, addresses, links and software of all nodes together."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: ascend_verdict
short_description: Judge the Ascend devices and software of all nodes together
description:
  - Finds devices that are ill, without an address or without a link; addresses that two nodes have; numbers of devices,
    chips and versions that differ; software that is installed but does not run; a training user that sees less.
  - What could not be read is a finding, never a pass. Returns all faults and does not fail because of them.
version_added: "0.2.0"
options:
  states:
    description:
      - What M(ascend_state) returned of each node; where it was tried out as the training user with C(user_devices),
        the number of devices that this user sees, and C(toolkit_home), where C(set_env.sh) leads it.
    type: list
    elements: dict
    required: true
  devices:
    description: Devices that each node must have; V(0) for as many as the others.
    type: int
    default: 0
  driver:
    description: Version that all nodes must have; empty when they only must be equal.
    type: str
    default: ""
  firmware:
    description: As O(driver).
    type: str
    default: ""
  cann:
    description: As O(driver).
    type: str
    default: ""
  net_health:
    description: Answers of C(hccn_tool -net_health -g) that count as healthy.
    type: list
    elements: str
    default: [Success]
extends_documentation_fragment: read_only
author:
  - trainyard
"""

EXAMPLES = r"""
- name: Judge all nodes
  ascend_verdict:
    states: "{{ ansible_play_hosts | map('extract', hostvars, ['found', 'state']) }}"
    devices: 8
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
from ansible.module_utils.trainyard.ascend.software import judge


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "states": {"type": "list", "elements": "dict", "required": True},
            "devices": {"type": "int", "default": 0},
            "driver": {"type": "str", "default": ""},
            "firmware": {"type": "str", "default": ""},
            "cann": {"type": "str", "default": ""},
            "net_health": {"type": "list", "elements": "str", "default": ["Success"]},
        },
        supports_check_mode=True,
    )
    states = module.params.pop("states")
    module.exit_json(changed=False, findings=[finding.as_dict() for finding in judge(states, module.params)])


if __name__ == "__main__":
    main()
