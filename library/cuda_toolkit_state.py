#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Read which CUDA toolkits a node has, and with what programs for them would be built there."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: cuda_toolkit_state
short_description: Read which CUDA toolkits a node has
description:
  - Returns the toolkits in C(/usr/local/cuda-X.Y), below O(cuda_root) and in O(homes) with their own versions, which of
    them is the default, the host compiler, and Open MPI and NCCL that programs could be built with.
  - Reads only.
options:
  cuda_root:
    description: Folder of the link C(cuda) to the default toolkit, and of the toolkits that the role installs.
    type: path
    required: true
  homes:
    description: Further folders to look at.
    type: list
    elements: str
    default: []
  compiler:
    description: Host compiler that nvcc is to use. Empty for C(g++).
    type: str
    default: ""
  user:
    description: Whose ssh sessions are to be looked at. Empty for nobody's.
    type: str
    default: ""
extends_documentation_fragment: [captured_machine, inventory_name, read_only]
"""

EXAMPLES = r"""
- name: See which toolkits the node has
  cuda_toolkit_state:
    host: "{{ inventory_hostname }}"
    cuda_root: /opt/trainyard
  register: found
"""

RETURN = r"""
state:
  description: What the node has.
  returned: success
  type: dict
  contains:
    host:
      description: The node's name in the inventory.
      type: str
    os:
      description: Operating system and its release.
      type: str
      sample: debian 12
    family:
      description: C(debian) where apt is to be expected, else the system's name.
      type: str
    arch:
      description: Hardware name, C(x86_64) or C(aarch64).
      type: str
    root:
      description: O(cuda_root).
      type: str
    toolkits:
      description:
        - By folder C(nvcc) (version of nvcc, empty where it does not answer), C(cuda) (the toolkit's own version, empty
          where it does not say), C(newest_gcc) that its headers accept, C(kind) (how it came there, or C(foreign)),
          C(named) (the version in the folder's name) and C(record) (what the role wrote down).
      type: dict
    default:
      description: Where the link C(cuda) leads; empty where there is none.
      type: str
    default_kind:
      description: C(none), C(link), or C(foreign) where something else has the name.
      type: str
    compiler:
      description: C(name), C(version) and whether it is C(installed); else the version that apt would install.
      type: dict
    compilers:
      description: Packages of host compilers that apt knows, oldest first.
      type: list
      elements: str
      sample: [g++-11, g++-12]
    free_mib:
      description: MiB free by folder.
      type: dict
    gpus:
      description: NVIDIA GPUs on the PCI bus.
      type: int
    mpi:
      description: C(version) and C(path) of the C(mpirun) of Open MPI; null where there is none.
      type: dict
    session:
      description: What sshd sets in sessions of O(user); null where it does not say, or no user was named.
      type: dict
    nccl:
      description: Folder with NCCL's headers and library; empty where there is none.
      type: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard_node.machine.tree import Tree
from ansible.module_utils.trainyard_node.nvidia.cuda import read_cuda


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "host": {"type": "str", "required": True},
            "cuda_root": {"type": "path", "required": True},
            "homes": {"type": "list", "elements": "str", "default": []},
            "compiler": {"type": "str", "default": ""},
            "user": {"type": "str", "default": ""},
            "root": {"type": "path", "default": "/"},
        },
        supports_check_mode=True,
    )
    given = module.params
    names = ("host", "cuda_root", "homes", "compiler", "user")
    state = read_cuda(Tree(given["root"]), *(given[name] for name in names))
    module.exit_json(changed=False, state=state)


if __name__ == "__main__":
    main()
