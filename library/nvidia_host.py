#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Read what a node is for NVIDIA's software: GPUs, kernel and headers, Secure Boot, packages, space."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: nvidia_host
short_description: Read what a node is for NVIDIA's driver, CUDA and NCCL
description:
  - Reads the GPUs from the PCI bus, so no driver is needed, and everything else that decides which driver and which
    CUDA the node can have. The filter C(nvidia_stack_plan) compares it with the stack.
  - Reads only. Starts a few short processes (C(uname), C(gcc), C(df), C(dpkg-query), C(apt-cache), C(mokutil)).
options:
  toolkits:
    description: Folders in which CUDA toolkits lie, each as C(cuda-VERSION).
    type: list
    elements: path
    default: [/usr/local]
  records:
    description: Folder in which the role nvidia_repository notes which packages it keeps at their version.
    type: path
    default: /var/lib/trainyard-root/packages
extends_documentation_fragment: [captured_machine, read_only]
"""

EXAMPLES = r"""
- name: Read what the node is
  nvidia_host:
    records: /var/lib/trainyard-root/packages
  register: found
"""

RETURN = r"""
nvidia_host:
  description: >-
    What the node is. Fields: C(os), C(arch), C(kernel), C(virtual), C(gpus), C(nvswitches),
    C(secure_boot), C(nouveau), C(gcc), C(apt), C(cuda), C(free_mib), C(rdma_ports).
  returned: success
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard_node.machine.tree import Tree
from ansible.module_utils.trainyard_node.nvidia.host import read_host


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "toolkits": {"type": "list", "elements": "path", "default": ["/usr/local"]},
            "records": {"type": "path", "default": "/var/lib/trainyard-root/packages"},
            "root": {"type": "path", "default": "/"},
        },
        supports_check_mode=True,
    )
    given = module.params
    module.exit_json(changed=False, nvidia_host=read_host(Tree(given["root"]), given["toolkits"], given["records"]))


if __name__ == "__main__":
    main()
