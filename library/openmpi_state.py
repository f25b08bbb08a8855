#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Read which Open MPI a node has, and what building one would find there."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: openmpi_state
short_description: Read which Open MPI a node has, and what building one would find there
description:
  - Returns the C(mpirun) that the node has, what the prefix holds, and whether headers of CUDA and UCX are there.
  - Reads only.
version_added: "0.2.0"
options:
  host:
    description: The node's name in the inventory.
    type: str
    required: true
  link:
    description: Link to the prefix in use, where C(mpirun) is looked for first.
    type: path
    required: true
  prefix:
    description: Where an Open MPI is to be built.
    type: path
    required: true
  cuda:
    description: C(auto), C(none), or the folder of the CUDA toolkit.
    type: str
    default: auto
  ucx:
    description: C(auto), C(none), or the folder of UCX.
    type: str
    default: auto
extends_documentation_fragment: read_only
author:
  - trainyard
"""

EXAMPLES = r"""
- name: Read which Open MPI the node has
  openmpi_state:
    host: "{{ inventory_hostname }}"
    link: /opt/trainyard/openmpi
    prefix: /opt/trainyard/openmpi-4.1.8
  register: state
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
    hostname:
      description: Host name that the kernel has.
      type: str
    platform:
      description: Operating system, its release, and hardware; a build serves all nodes that are equal in it.
      type: str
      sample: debian 12 x86_64
    cpus:
      description: CPUs that a build may use.
      type: int
    free_mb:
      description: MB (10^6 bytes) that are free where O(prefix) is or would be.
      type: int
    mpi:
      description: C(version) and C(path) of the C(mpirun) of Open MPI; null where there is none that answers.
      type: dict
    record:
      description: What the Open MPI in O(prefix) was built from; null where this role built none.
      type: dict
    prefix_kind:
      description: C(none), C(built) by this role, or C(foreign).
      type: str
    link:
      description: O(link).
      type: str
    link_kind:
      description: C(none), C(link), or C(foreign) where something else has the name.
      type: str
    cuda:
      description: Folder of the CUDA toolkit with its headers, empty where there is none.
      type: str
    ucx:
      description: Folder of UCX with its headers, empty where there is none.
      type: str
"""

import os
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard_node.builds import read_place
from ansible.module_utils.trainyard_node.mpi import read_mpi
from ansible.module_utils.trainyard_node.tree import Tree

HEADERS = {"cuda": "include/cuda.h", "ucx": "include/ucp/api/ucp.h"}
FOLDERS = {"cuda": ["/usr/local/cuda", "/usr"], "ucx": ["/opt/ucx", "/usr/local", "/usr"]}


def folder(name: str, wanted: str) -> str:
    """Return the folder that holds the headers."""
    if wanted == "none":
        return ""
    places = FOLDERS[name] if wanted == "auto" else [wanted]
    return next((place for place in places if Path(place, HEADERS[name]).exists()), "")


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "host": {"type": "str", "required": True},
            "link": {"type": "path", "required": True},
            "prefix": {"type": "path", "required": True},
            "cuda": {"type": "str", "default": "auto"},
            "ucx": {"type": "str", "default": "auto"},
        },
        supports_check_mode=True,
    )
    prefix, link = Path(module.params["prefix"]), Path(module.params["link"])
    module.exit_json(
        changed=False,
        state={
            "host": module.params["host"],
            "hostname": os.uname().nodename,
            "mpi": read_mpi(Tree(), str(link)),
            **read_place(prefix),
            "link": str(link),
            "link_kind": "link" if link.is_symlink() else "foreign" if link.exists() else "none",
            **{name: folder(name, module.params[name]) for name in ("cuda", "ucx")},
        },
    )


if __name__ == "__main__":
    main()
