#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Plan how each node gets its NVIDIA driver, and find what forbids it, before anything is touched."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: nvidia_driver_plan
short_description: Plan how each node gets its NVIDIA driver
description:
  - Compares what each node has with the driver wanted there, and returns for each node what is to be done, which
    packages to ask for or which arguments to give to the vendor's installer, and all that stands in the way.
  - Needs no machine; run it on the controller, once for all nodes.
version_added: "0.2.0"
options:
  hosts:
    description:
      - For each node its C(driver), as M(nvidia_driver_state) returns it, its C(facts), as M(nvidia_host) returns them,
        and what is C(wanted) there.
    type: list
    elements: dict
    required: true
extends_documentation_fragment: read_only
author:
  - trainyard
"""

EXAMPLES = r"""
- name: Plan for all nodes
  nvidia_driver_plan:
    hosts: "{{ ansible_play_hosts | map('extract', hostvars, 'driver_input') }}"
  delegate_to: localhost
  run_once: true
  register: plan
"""

RETURN = r"""
hosts:
  description:
    - For each host C(action) (V(skip), V(verify), V(install) or V(remove)), C(remove) (where the driver comes from that
      goes first), C(roots) (names of packages), C(pinning), C(arguments) of the installer, C(gpus), C(fabric_manager)
      and C(step), what would be done in one line.
  returned: success
  type: dict
findings:
  description: All faults, each with host, check, found, expected and action.
  returned: success
  type: list
  elements: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard.nvidia.driver_plan import plan_hosts


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={"hosts": {"type": "list", "elements": "dict", "required": True}},
        supports_check_mode=True,
    )
    hosts, findings = plan_hosts(module.params["hosts"])
    module.exit_json(changed=False, hosts=hosts, findings=[finding.as_dict() for finding in findings])


if __name__ == "__main__":
    main()
