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
  - Says which of O(packages) are missing, what there is of O(files), and whether O(session) is as it shall be.
  - Reads only.
options:
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
  packages:
    description: Packages of the operating system.
    type: list
    elements: str
    default: []
  package_manager:
    description: Ansible's fact C(pkg_mgr).
    type: str
    default: ""
  files:
    description: Paths of files to read owner, mode and digest of.
    type: list
    elements: str
    default: []
  session:
    description: What M(session_environment) would be given; empty for nothing.
    type: dict
    default: {}
extends_documentation_fragment: [inventory_name, read_only]
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
missing_packages:
  description: Those of O(packages) that are not installed.
  returned: success
  type: list
  elements: str
files:
  description: By path what there is of O(files), with kind, owner, uid, group, gid, mode and sha256.
  returned: success
  type: dict
session_differs:
  description: Whether M(session_environment) would change something.
  returned: success
  type: bool
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
    in_prefix:
      description: The same of the C(mpirun) in O(prefix), whoever brought it; null where there is none.
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
    link_target:
      description: Where the link leads, empty where there is none.
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
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard.cluster.ssh_sessions import rewrite
from ansible.module_utils.trainyard_node.machine.files import read_files
from ansible.module_utils.trainyard_node.machine.packages import missing_packages
from ansible.module_utils.trainyard_node.machine.tree import Tree
from ansible.module_utils.trainyard_node.software.builds import read_place
from ansible.module_utils.trainyard_node.software.openmpi import read_mpi, read_mpi_of

HEADERS = {"cuda": "include/cuda.h", "ucx": "include/ucp/api/ucp.h"}
FOLDERS = {"cuda": ["/usr/local/cuda", "/usr"], "ucx": ["/opt/ucx", "/usr/local", "/usr"]}


def folder(name: str, wanted: str) -> str:
    """Return the folder that holds the headers."""
    if wanted == "none":
        return ""
    places = FOLDERS[name] if wanted == "auto" else [wanted]
    return next((place for place in places if Path(place, HEADERS[name]).exists()), "")


def session_differs(wanted: dict[str, Any]) -> bool:
    """Tell whether the module session_environment would change something; that one says what cannot be read."""
    if not wanted:
        return False
    file = Path(wanted["file"])
    before = file.read_text() if file.exists() else ""
    try:
        return before != rewrite(before, wanted["user"], wanted["name"], wanted)
    except ValueError:
        return True


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "host": {"type": "str", "required": True},
            "link": {"type": "path", "required": True},
            "prefix": {"type": "path", "required": True},
            "cuda": {"type": "str", "default": "auto"},
            "ucx": {"type": "str", "default": "auto"},
            "packages": {"type": "list", "elements": "str", "default": []},
            "package_manager": {"type": "str", "default": ""},
            "files": {"type": "list", "elements": "str", "default": []},
            "session": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    prefix, link = Path(module.params["prefix"]), Path(module.params["link"])
    module.exit_json(
        changed=False,
        missing_packages=missing_packages(Tree(), module.params["package_manager"], module.params["packages"]),
        files=read_files(module.params["files"]),
        session_differs=session_differs(module.params["session"]),
        state={
            "host": module.params["host"],
            "hostname": os.uname().nodename,
            "mpi": read_mpi(Tree(), str(link)),
            "in_prefix": read_mpi_of(Tree(), str(prefix)),
            **read_place(prefix),
            "link": str(link),
            "link_target": str(link.readlink()) if link.is_symlink() else "",
            "link_kind": "link" if link.is_symlink() else "foreign" if link.exists() else "none",
            **{name: folder(name, module.params[name]) for name in ("cuda", "ucx")},
        },
    )


if __name__ == "__main__":
    main()
