#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Judge the NVIDIA drivers of all nodes: module, user space and Fabric Manager at one version, or a reboot is due."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: nvidia_driver_verdict
short_description: Judge the NVIDIA drivers of all nodes
description:
  - Finds a driver that is not the one wanted, a module that was not built for a kernel (with the compiler's reason), a
    user space or Fabric Manager of another version than the module, and what does not run before a reboot.
  - Returns all faults and does not fail because of them.
version_added: "0.2.0"
options:
  hosts:
    description:
      - For each node its C(driver), as M(nvidia_driver_state) returns it, and what is C(wanted) there, C(version),
        C(branch), C(flavour), C(kernels), C(gpus) and C(fabric_manager).
    type: list
    elements: dict
    required: true
extends_documentation_fragment: read_only
author:
  - trainyard
"""

EXAMPLES = r"""
- name: Judge all nodes
  nvidia_driver_verdict:
    hosts: "{{ ansible_play_hosts | map('extract', hostvars, 'driver_judged') }}"
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
from ansible.module_utils.trainyard.nvidia.driver import judge


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={"hosts": {"type": "list", "elements": "dict", "required": True}},
        supports_check_mode=True,
    )
    findings = [finding for host in module.params["hosts"] for finding in judge(host["driver"], host["wanted"])]
    module.exit_json(changed=False, findings=[finding.as_dict() for finding in findings])


if __name__ == "__main__":
    main()
