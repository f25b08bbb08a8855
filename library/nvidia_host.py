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
    CUDA the node can have. The filter C(nvidia_stack_plan) compares it with what is wanted.
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
extends_documentation_fragment: [captured_machine, inventory_name, read_only]
"""

EXAMPLES = r"""
- name: Read what the node is
  nvidia_host:
    host: "{{ inventory_hostname }}"
  register: found
"""

RETURN = r"""
nvidia_host:
  description: What the node is.
  returned: success
  type: dict
  contains:
    host:
      description: The node's name in the inventory.
      type: str
    os:
      description: Operating system, with C(id), C(version) and C(family) (V(debian), V(redhat), V(suse) or the id).
      type: dict
      sample: {id: debian, version: "12", family: debian}
    arch:
      description: Hardware name, V(x86_64) or V(aarch64).
      type: str
    kernel:
      description:
        - C(running) kernel; C(headers), the releases for which modules can be built; C(headers_available), whether apt
          offers the headers of the running one (null where that is not known).
      type: dict
      sample: {running: 6.1.0-41-amd64, headers: [6.1.0-41-amd64], headers_available: true}
    virtual:
      description: The container engine whose container the node is; empty on a machine of its own.
      type: str
    gpus:
      description:
        - GPUs on the PCI bus with C(pci), C(device_id), C(name) (empty where only the generation is known) and
          C(generation) (V(kepler) to V(blackwell), or V(unknown)).
      type: list
      elements: dict
    nvswitches:
      description: NVSwitches on the PCI bus, those of the fifth NVLink by the ports that manage them.
      type: int
    secure_boot:
      description: V(enabled), V(disabled), V(unknown), or V(none) where the machine has not been started by EFI.
      type: str
    nouveau:
      description: Whether the kernel's own driver for these GPUs is loaded.
      type: bool
    gcc:
      description: Version of the default gcc; empty where there is none.
      type: str
    apt:
      description:
        - On dpkg systems the C(held) packages, those of them that the role nvidia_repository keeps (C(kept)), and the
          C(broken) ones with their state.
      type: dict
    cuda:
      description: Versions of the CUDA toolkits, and V(distro) for the distribution's own.
      type: list
      elements: str
    free_mib:
      description: Free MiB of C(/), C(/usr), C(/boot) and C(/var).
      type: dict
    rdma_ports:
      description: Ports of RDMA devices.
      type: int
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard_node.machine.tree import Tree
from ansible.module_utils.trainyard_node.nvidia.host import read_host


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "host": {"type": "str", "required": True},
            "toolkits": {"type": "list", "elements": "path", "default": ["/usr/local"]},
            "records": {"type": "path", "default": "/var/lib/trainyard-root/packages"},
            "root": {"type": "path", "default": "/"},
        },
        supports_check_mode=True,
    )
    given = module.params
    module.exit_json(
        changed=False, nvidia_host=read_host(Tree(given["root"]), given["host"], given["toolkits"], given["records"])
    )


if __name__ == "__main__":
    main()
