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
extends_documentation_fragment: [captured_machine, saved_output, read_only]
seealso:
  - module: network_info
"""

EXAMPLES = r"""
- name: Read the accelerators
  accelerator_info:
  register: found

- name: Read what nvidia-smi printed on another machine
  accelerator_info:
    capture: nvidia-smi.txt
  delegate_to: localhost
"""

RETURN = r"""
accelerators:
  description: >-
    The accelerators of the node. Fields: C(count), C(vendor), C(driver), C(devices), C(problems), C(notes).
    C(devices) has C(index), C(physical_id), C(uuid), C(model), C(memory_mib), C(pci), C(link_gen_max),
    C(link_width_max), C(mig), C(health), C(card), C(chip).
  returned: success
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard.hardware.captures import accelerators
from ansible.module_utils.trainyard_node.hardware.capture_file import read_capture
from ansible.module_utils.trainyard_node.hardware.device_discovery import read_accelerators
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
