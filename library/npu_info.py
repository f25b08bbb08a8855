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
extends_documentation_fragment: [captured_machine, pasted_outputs, read_only]
seealso:
  - module: accelerator_info
  - module: node_info
"""

EXAMPLES = r"""
- name: Read the Ascend devices
  npu_info:
  register: found

- name: Read what somebody pasted of npu-smi and hccn_tool
  npu_info:
    capture: ticket-4711.txt
  delegate_to: localhost

- name: Stop where a device has no address or its link is down
  ansible.builtin.assert:
    that: found.npu.problems | length == 0
    fail_msg: "{{ inventory_hostname }}: {{ found.npu.problems | join('; ') }}"
"""

RETURN = r"""
npu:
  description: The devices; empty on a node that has none.
  returned: success
  type: dict
  contains:
    chip:
      description: C(910), C(910b) or C(a3), as rank tables differ by it; empty for others and for a mixture.
      type: str
    super_pod_id:
      description: The super pod of an A3 node; empty elsewhere.
      type: str
    devices:
      description: The devices in the order of their logic id.
      type: list
      elements: dict
      contains:
        index:
          description: Logic id, by which programs select the device.
          type: int
        physical_id:
          description: Physical id, by which C(hccn_tool) and rank tables name it.
          type: int
        device_ip:
          description: Address of its network port; empty where none is set.
          type: str
          sample: 192.1.0.6
        health:
          description: Health as C(npu-smi info) prints it.
          type: str
          sample: OK
        link:
          description: C(up), C(down) or C(unknown).
          type: str
        net_health:
          description: As C(hccn_tool -net_health -g) prints it; C(Init) where no address to ping is configured.
          type: str
          sample: Success
        super_device_id:
          description: Number of the device in its super pod (A3); empty elsewhere.
          type: str
        visible:
          description: Whether ASCEND_RT_VISIBLE_DEVICES of the calling user lets programs see it.
          type: bool
    problems:
      description: What is wrong, with what to do; empty on a healthy node.
      type: list
      elements: str
    notes:
      description: What could not be read, or is worth knowing.
      type: list
      elements: str
queries:
  description: What hccn_tool answered to its other queries, by physical id and query, as it names it.
  returned: with O(capture)
  type: dict
  sample: {"0": {"optical": {"present": "present"}}}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard.hardware.captures import npus
from ansible.module_utils.trainyard_node.hardware.accelerators import read_accelerators
from ansible.module_utils.trainyard_node.hardware.captures import read_capture
from ansible.module_utils.trainyard_node.hardware.npu import read_npu
from ansible.module_utils.trainyard_node.machine.tree import Tree


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={"root": {"type": "path", "default": "/"}, "capture": {"type": "path"}}, supports_check_mode=True
    )
    if module.params["capture"]:
        found, queries = read_capture(module, npus)
        module.exit_json(changed=False, npu=found or {}, queries=queries)
    tree = Tree(module.params["root"])
    module.exit_json(changed=False, npu=read_npu(tree, read_accelerators(tree)) or {})


if __name__ == "__main__":
    main()
