#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Read the Ascend devices of a node and the vendor's software: what is installed, and what runs."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: ascend_state
short_description: Read the Ascend devices of a node and the vendor's software
description:
  - Returns the devices as M(npu_info) does, and the versions of driver, firmware and CANN as the vendor's version files
    tell them, with the driver and firmware that run as C(npu-smi) tells them.
  - Reads only. Starts C(npu-smi) once for each card on top of what M(npu_info) starts.
options:
  ascend_root:
    description: Where the vendor's packages are installed, unless C(/etc/ascend_install.info) names another folder.
    type: path
    default: /usr/local/Ascend
extends_documentation_fragment: [captured_machine, inventory_name, read_only]
"""

EXAMPLES = r"""
- name: Read devices and versions
  ascend_state:
    host: "{{ inventory_hostname }}"
  register: found
"""

RETURN = r"""
state:
  description: The state of the node.
  returned: success
  type: dict
  contains:
    host:
      description: The node's name in the inventory.
      type: str
    machine:
      description: Hardware name, C(x86_64) or C(aarch64).
      type: str
    npu:
      description: The devices as M(npu_info) returns them; empty on a node that has none.
      type: dict
    driver:
      description: Version of the driver that is installed; empty where there is none.
      type: str
      sample: 24.1.0
    running_driver:
      description: Version of the driver that runs; empty where there is none.
      type: str
      sample: 24.1.0
    firmware:
      description: Version of the firmware that is installed; empty where there is none.
      type: str
      sample: 7.5.0.3.220
    boards:
      description: For each C(card) the C(firmware) that runs there, and its C(compatibility) with the driver.
      type: list
      elements: dict
    cann:
      description: Version of the CANN toolkit in use; empty where there is none.
      type: str
      sample: 8.0.0
    cann_path:
      description: Where it lies.
      type: str
    cann_homes:
      description: Folders that its C(set_env.sh) may rightly call its home.
      type: list
      elements: str
    set_env:
      description: Its C(set_env.sh); empty where there is none.
      type: str
    restart_due:
      description: What is installed but does not run yet.
      type: list
      elements: str
    installed:
      description: What the role C(ascend) installed, C(version) and C(sha256) of the package by component.
      type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard_node.ascend.software import read_ascend
from ansible.module_utils.trainyard_node.machine.tree import Tree


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "host": {"type": "str", "required": True},
            "ascend_root": {"type": "path", "default": "/usr/local/Ascend"},
            "root": {"type": "path", "default": "/"},
        },
        supports_check_mode=True,
    )
    given = module.params
    module.exit_json(
        changed=False, state=read_ascend(Tree(given["root"]), given["host"], given["ascend_root"].rstrip("/"))
    )


if __name__ == "__main__":
    main()
