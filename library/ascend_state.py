#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Ansible module ascend_state: read the Ascend devices of a node and the vendor's software."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: ascend_state
short_description: Read the Ascend devices of a node and the vendor's software
description:
  - Returns the devices as M(npu_info) does, the versions of driver, firmware and CANN in the vendor's version files,
    and the running driver and firmware as C(npu-smi) reports them.
  - Reads only. Starts C(npu-smi) once for each card on top of what M(npu_info) starts.
options:
  ascend_root:
    description: Where the vendor's packages are installed, unless C(/etc/ascend_install.info) names another folder.
    type: path
    default: /usr/local/Ascend
extends_documentation_fragment: [captured_machine, read_only]
"""

EXAMPLES = r"""
- name: Read devices and versions
  ascend_state:
    ascend_root: /usr/local/Ascend
  register: found
"""

RETURN = r"""
state:
  description: >-
    The C(machine) (hardware name); C(npu) as M(npu_info) returns it; versions C(driver),
    C(running_driver), C(firmware), C(cann), empty where missing; C(boards), running C(firmware) and C(compatibility) of
    each C(card); C(cann_path), C(cann_homes) (folders that C(set_env.sh) may name) and C(set_env); C(restart_due),
    installed components that wait for a restart; C(installed), version and sha256 by component.
  returned: success
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard_node.ascend.ascend_state import read_ascend
from ansible.module_utils.trainyard_node.machine.tree import Tree


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "ascend_root": {"type": "path", "default": "/usr/local/Ascend"},
            "root": {"type": "path", "default": "/"},
        },
        supports_check_mode=True,
    )
    given = module.params
    module.exit_json(changed=False, state=read_ascend(Tree(given["root"]), given["ascend_root"].rstrip("/")))


if __name__ == "__main__":
    main()
