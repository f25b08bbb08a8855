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
extends_documentation_fragment: [captured_machine, read_only]
"""

EXAMPLES = r"""
- name: Read the driver
  nvidia_driver_state:
  register: found
"""

RETURN = r"""
driver:
  description: >-
    What the node has. Fields: C(kernel), C(headers), C(provider), C(version), C(packages), C(broken),
    C(held), C(runfile), C(loaded), C(flavour), C(userspace), C(fabric_manager), C(smi), C(dkms), C(modules),
    C(builds), C(unbuilt), C(nouveau), C(reboot_due).
  returned: success
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard_node.machine.tree import Tree
from ansible.module_utils.trainyard_node.nvidia.driver_state import read_driver


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "kernels": {"type": "list", "elements": "str", "default": []},
            "root": {"type": "path", "default": "/"},
        },
        supports_check_mode=True,
    )
    given = module.params
    module.exit_json(changed=False, driver=read_driver(Tree(given["root"]), given["kernels"]))


if __name__ == "__main__":
    main()
