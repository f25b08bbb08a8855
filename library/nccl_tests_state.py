#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Read what nccl-tests were built from on a node, and what building them would find there."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: nccl_tests_state
short_description: Read what nccl-tests were built from on a node, and what building them would find there
description:
  - Returns CUDA, NCCL and Open MPI with their versions, the missing tools of a build, and the content of the prefix.
options:
  prefix:
    description: Where nccl-tests are to be.
    type: path
    required: true
  software:
    description: Folder of the links C(cuda), C(nccl) and C(openmpi), which are read first.
    type: path
    default: /opt/trainyard
  cuda_home:
    description: The CUDA toolkit's folder; empty to search it.
    type: str
    default: ""
  nccl_home:
    description: Folder of NCCL's C(include) and C(lib); empty to search it.
    type: str
    default: ""
  mpi_home:
    description: Folder of Open MPI's C(include) and C(lib); empty to search it.
    type: str
    default: ""
  tools:
    description: Programs that a build needs.
    type: list
    elements: str
    default: []
extends_documentation_fragment: read_only
"""

EXAMPLES = r"""
- name: See what there is to build with
  nccl_tests_state:
    prefix: /opt/trainyard/nccl-tests
    tools: [make, g++]
  register: state
"""

RETURN = r"""
state:
  description: >-
    C(platform), C(cpus), C(free_mb), C(record), C(prefix_kind), C(cuda), C(nccl), C(mpi), C(missing) (tools).
  returned: success
  type: dict
"""

import platform
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard.nvidia.nccl_tests import PARTS
from ansible.module_utils.trainyard_node.machine.tree import Tree
from ansible.module_utils.trainyard_node.nvidia.nccl_tests_probe import read_part
from ansible.module_utils.trainyard_node.software.build_prefix import read_place


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "prefix": {"type": "path", "required": True},
            "software": {"type": "path", "default": "/opt/trainyard"},
            "cuda_home": {"type": "str", "default": ""},
            "nccl_home": {"type": "str", "default": ""},
            "mpi_home": {"type": "str", "default": ""},
            "tools": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    given, tree = module.params, Tree()
    parts = {
        name: read_part(tree, name, given["software"], given[f"{name}_home"], platform.machine()) for name in PARTS
    }
    module.exit_json(
        changed=False,
        state={
            **read_place(Path(given["prefix"])),
            **parts,
            "missing": [tool for tool in given["tools"] if tree.tool(tool) is None],
        },
    )


if __name__ == "__main__":
    main()
