#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Read which CUDA toolkits a node has, and with what programs for them would be built there."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: cuda_toolkit_state
short_description: Read which CUDA toolkits a node has
description:
  - Returns the toolkits in C(/usr/local/cuda-X.Y), below O(cuda_root) and in O(homes), the default among them, the host
    compiler, Open MPI and NCCL.
options:
  cuda_root:
    description: Folder of the link C(cuda) to the default toolkit, and of the toolkits that the role installs.
    type: path
    required: true
  homes:
    description: Further folders of toolkits.
    type: list
    elements: str
    default: []
  compiler:
    description: Host compiler that nvcc is to use. Empty for C(g++).
    type: str
    default: ""
  user:
    description: User whose ssh sessions are checked. Empty for none.
    type: str
    default: ""
extends_documentation_fragment: [captured_machine, read_only]
"""

EXAMPLES = r"""
- name: See which toolkits the node has
  cuda_toolkit_state:
    cuda_root: /opt/trainyard
  register: found
"""

RETURN = r"""
state:
  description: >-
    C(os), C(family), C(arch), C(root), C(toolkits), C(default),
    C(default_kind), C(compiler), C(compilers), C(free_mib), C(gpus), C(mpi), C(session), C(nccl).
  returned: success
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard_node.machine.tree import Tree
from ansible.module_utils.trainyard_node.nvidia.cuda_toolkits import read_cuda


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "cuda_root": {"type": "path", "required": True},
            "homes": {"type": "list", "elements": "str", "default": []},
            "compiler": {"type": "str", "default": ""},
            "user": {"type": "str", "default": ""},
            "root": {"type": "path", "default": "/"},
        },
        supports_check_mode=True,
    )
    given = module.params
    names = ("cuda_root", "homes", "compiler", "user")
    state = read_cuda(Tree(given["root"]), *(given[name] for name in names))
    module.exit_json(changed=False, state=state)


if __name__ == "__main__":
    main()
