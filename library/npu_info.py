#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Read the Ascend devices of a node as an HCCL rank table needs them."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: npu_info
short_description: Read the Ascend devices of a node and their network
description:
  - Returns chip, health, network address, link and super device id of each Ascend device, from C(npu-smi) and
    C(hccn_tool).
  - An address that C(hccn_tool) does not tell is taken from C(/etc/hccn.conf). What neither has (also C(-.-.-.-)) is
    empty and a problem, but on A3, where devices of one super pod may do without.
  - Devices are never renumbered, also where ASCEND_RT_VISIBLE_DEVICES hides some of them from programs.
  - Reads only. Starts C(hccn_tool) three times for each device, one after the other. With some drivers only root may.
extends_documentation_fragment: [captured_machine, read_only]
seealso:
  - module: accelerator_info
"""

EXAMPLES = r"""
- name: Read the Ascend devices
  npu_info:
  register: found
"""

RETURN = r"""
npu:
  description: >-
    The devices; empty on a node that has none. Fields: C(chip), C(super_pod_id), C(devices), C(problems), C(notes).
    C(devices) has C(index), C(physical_id), C(device_ip), C(health), C(link), C(net_health), C(super_device_id),
    C(visible).
  returned: success
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard_node.hardware.device_discovery import read_accelerators
from ansible.module_utils.trainyard_node.hardware.npu_discovery import read_npu
from ansible.module_utils.trainyard_node.machine.tree import Tree


def main() -> None:
    """Run the module."""
    module = AnsibleModule(argument_spec={"root": {"type": "path", "default": "/"}}, supports_check_mode=True)
    tree = Tree(module.params["root"])
    module.exit_json(changed=False, npu=read_npu(tree, read_accelerators(tree)) or {})


if __name__ == "__main__":
    main()
