#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Read the accelerators of a node: NVIDIA GPUs, Ascend NPUs, or none."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: accelerator_info
short_description: Read the accelerators of a node
description:
  - Returns NVIDIA GPUs as C(nvidia-smi) and Ascend NPUs as C(npu-smi) list them, compared with what the PCI bus shows.
  - Reads only. Starts no process on a node that has neither tool, and works for an unprivileged user.
  - A driver that is installed but does not answer, a device that does not answer, and devices on the PCI bus without
    a driver are problems; such a node never looks like one without accelerators.
extends_documentation_fragment: [captured_machine, pasted_outputs, read_only]
seealso:
  - module: network_info
  - module: node_info
"""

EXAMPLES = r"""
- name: Read the accelerators
  accelerator_info:
  register: found

- name: Read what somebody pasted of nvidia-smi and lspci
  accelerator_info:
    capture: ticket-4711.txt
  delegate_to: localhost

- name: Stop where there are fewer than eight GPUs or one does not answer
  ansible.builtin.assert:
    that:
      - found.accelerators.devices | length == 8
      - found.accelerators.problems | length == 0
    fail_msg: >-
      {{ inventory_hostname }}: {{ found.accelerators.devices | length }} GPUs, expected 8.
      {{ found.accelerators.problems | join('; ') }}
"""

RETURN = r"""
accelerators:
  description: The accelerators of the node.
  returned: success
  type: dict
  contains:
    count:
      description: Number of devices.
      type: int
      sample: 8
    vendor:
      description: C(nvidia), C(ascend) or C(none). Named also where its devices or driver are broken.
      type: str
      sample: nvidia
    driver:
      description: Version of the driver; null where it is unknown.
      type: str
      sample: 550.90.07
    devices:
      description: The devices in the order of their index.
      type: list
      elements: dict
      contains:
        index:
          description: Number by which programs select the device (for Ascend the logic id).
          type: int
        physical_id:
          description: Number of the device on the board, as an HCCL rank table wants it.
          type: int
        uuid:
          description: UUID; null for Ascend and for a GPU that does not answer.
          type: str
        model:
          description: Product name.
          type: str
          sample: NVIDIA H100 80GB HBM3
        memory_mib:
          description: Memory in MiB; null where it is shared with the CPU or unknown.
          type: int
          sample: 81559
        pci:
          description: PCI address as sysfs writes it.
          type: str
          sample: "0000:1b:00.0"
        link_gen_max:
          description: PCIe generation that the GPU and its slot can do; absent where sysfs does not say it.
          type: int
        link_width_max:
          description: The same of its lanes.
          type: int
        mig:
          description: Whether the GPU is divided by MIG.
          type: bool
        health:
          description: What C(npu-smi) calls the health of an NPU, C(OK) for a sound one; null for NVIDIA.
          type: str
        card:
          description: C(NPU ID) by which C(npu-smi -i) is asked; null for NVIDIA.
          type: int
        chip:
          description: C(Chip ID) by which C(npu-smi -c) is asked; null for NVIDIA.
          type: int
    problems:
      description: What is broken, with what to do; empty on a healthy node.
      type: list
      elements: str
    notes:
      description: What is worth knowing but not broken, such as MIG.
      type: list
      elements: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard.hardware.captures import accelerators
from ansible.module_utils.trainyard_node.hardware.accelerators import read_accelerators
from ansible.module_utils.trainyard_node.hardware.captures import read_capture
from ansible.module_utils.trainyard_node.machine.tree import Tree


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={"root": {"type": "path", "default": "/"}, "capture": {"type": "path"}}, supports_check_mode=True
    )
    capture = module.params["capture"]
    found = read_capture(module, accelerators) if capture else read_accelerators(Tree(module.params["root"]))
    module.exit_json(changed=False, accelerators={**found, "count": len(found["devices"])})


if __name__ == "__main__":
    main()
