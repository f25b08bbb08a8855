#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Read the NVIDIA driver of a node: where it came from, what is built for which kernel, and what runs."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: nvidia_driver_state
short_description: Read the NVIDIA driver of a node
description:
  - Returns the driver that is installed and where it came from, what dkms built for which kernel, and which version
    runs. A driver whose module was not built for a kernel is seen as that, and with the compiler's reason.
  - Reads only.
options:
  kernels:
    description: Kernels that need the module, as C(uname -r) prints them; the running one without any.
    type: list
    elements: str
    default: []
extends_documentation_fragment: [captured_machine, inventory_name, read_only]
"""

EXAMPLES = r"""
- name: Read the driver
  nvidia_driver_state:
    host: "{{ inventory_hostname }}"
  register: found
"""

RETURN = r"""
driver:
  description: What the node has.
  returned: success
  type: dict
  contains:
    host:
      description: The node's name in the inventory.
      type: str
    kernel:
      description: The kernel that runs.
      type: str
    headers:
      description: Kernels whose headers are installed.
      type: list
      elements: str
    provider:
      description:
        - Where the driver came from, V(none), V(distro), V(network_repo), V(runfile) or V(unknown).
        - V(unknown) is a mixture, or a driver that runs and belongs to no package.
      type: str
    version:
      description: Version that is installed; empty where there is none.
      type: str
      sample: 550.127.08
    packages:
      description: The driver's packages with their versions.
      type: dict
    broken:
      description: Those of them that are not wholly installed.
      type: list
      elements: str
    held:
      description: Those of them that are held.
      type: list
      elements: str
    runfile:
      description: Version that the vendor's installer has installed; empty without.
      type: str
    loaded:
      description: Version of the module that is loaded; empty where none is.
      type: str
    flavour:
      description: Flavour of the module, V(open) or V(proprietary); empty where it is not known.
      type: str
    userspace:
      description: Version of libnvidia-ml; several where there are several.
      type: str
    fabric_manager:
      description: Version of Fabric Manager; empty where there is none.
      type: str
    smi:
      description: The C(driver) that nvidia-smi names, or the C(problem) that it has.
      type: dict
    dkms:
      description: What C(dkms status) says of the driver, C(module), C(version), C(kernel) and C(state).
      type: list
      elements: dict
    modules:
      description: For each of O(kernels) the module that it would load, C(version), C(flavour) and C(signer).
      type: dict
    builds:
      description: For those of O(kernels) whose build failed, the compiler's reason.
      type: dict
    unbuilt:
      description: What dkms could build for one of O(kernels) and has not, C(module), C(version) and C(kernel).
      type: list
      elements: dict
    nouveau:
      description: Whether nouveau is loaded.
      type: bool
    reboot_due:
      description: What is installed but does not run before a reboot.
      type: list
      elements: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard_node.machine.tree import Tree
from ansible.module_utils.trainyard_node.nvidia.driver import read_driver


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "host": {"type": "str", "required": True},
            "kernels": {"type": "list", "elements": "str", "default": []},
            "root": {"type": "path", "default": "/"},
        },
        supports_check_mode=True,
    )
    given = module.params
    module.exit_json(changed=False, driver=read_driver(Tree(given["root"]), given["host"], given["kernels"]))


if __name__ == "__main__":
    main()
