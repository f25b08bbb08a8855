#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Judge the RDMA ports of all nodes together: what each is, and what it should be."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: rdma_verdict
short_description: Judge the RDMA ports of all nodes together
description:
  - Compares the ports of each node with what is declared for it; nodes of which nothing is declared are compared with
    each other.
  - Runs on the controller, reads nothing and changes nothing.
version_added: "0.2.0"
options:
  states:
    description: The nodes.
    type: list
    elements: dict
    required: true
    suboptions:
      host:
        description: The node's name in the inventory.
        type: str
        required: true
      networks:
        description: What M(network_info) returned.
        type: dict
        required: true
      virtual:
        description: Container engine or hypervisor that the node is in; empty on a machine of its own.
        type: str
        default: ""
      verbs:
        description: What C(ibv_devices) printed; null where it was not asked.
        type: str
      expected:
        description: C(auto), C(0) for a node without RDMA, or the number of ports that carry traffic.
        type: str
        default: auto
      ports:
        description: >-
          Ports that the node must have, each with C(device), C(port) (1), and as far as they matter C(rate_gbps),
          C(link_layer), C(state) (ACTIVE), C(netdev).
        type: list
        elements: dict
        default: []
      rate_gbps:
        description: Rate in Gb/s of every port that is judged; 0 for any.
        type: float
        default: 0
      link_layer:
        description: C(InfiniBand) or C(Ethernet) (RoCE), of every port that is judged; empty for either.
        type: str
        default: ""
extends_documentation_fragment: read_only
author:
  - trainyard
seealso:
  - module: network_info
"""

EXAMPLES = r"""
- name: Judge all nodes together
  rdma_verdict:
    states: "{{ ansible_play_hosts | map('extract', hostvars, 'rdma_node') }}"
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
from ansible.module_utils.trainyard.hardware.rdma import judge


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "states": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "host": {"type": "str", "required": True},
                    "networks": {"type": "dict", "required": True},
                    "virtual": {"type": "str", "default": ""},
                    "verbs": {"type": "str"},
                    "expected": {"type": "str", "default": "auto"},
                    "ports": {"type": "list", "elements": "dict", "default": []},
                    "rate_gbps": {"type": "float", "default": 0},
                    "link_layer": {"type": "str", "default": ""},
                },
            },
        },
        supports_check_mode=True,
    )
    module.exit_json(changed=False, findings=[finding.as_dict() for finding in judge(module.params["states"])])


if __name__ == "__main__":
    main()
