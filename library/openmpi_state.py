#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Read a node's Open MPI, and what a build would find."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: openmpi_state
short_description: Read a node's Open MPI, and what a build would find
description:
  - Returns the node's C(mpirun), the content of the prefix, and the folders with headers of CUDA and UCX.
  - Reports missing O(packages), the attributes of O(files), and whether O(session) differs.
options:
  link:
    description: Link to the prefix in use, the first place to find C(mpirun).
    type: path
    required: true
  prefix:
    description: Prefix of a build.
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
    description: Files whose owner, mode and digest are read.
    type: list
    elements: str
    default: []
  session:
    description: Arguments of M(session_environment); empty for none.
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
  description: Attributes of O(files) by path (kind, owner, uid, group, gid, mode, sha256).
  returned: success
  type: dict
session_differs:
  description: Whether M(session_environment) would change something.
  returned: success
  type: bool
state:
  description: >-
    The node's C(host), C(hostname), C(platform) (equal where one build serves), C(cpus) and C(free_mb) for a build;
    C(mpi) and C(in_prefix), version and path of the mpirun in use and in O(prefix), or null; C(record) of this role's
    build; C(prefix_kind) and C(link_kind) (C(none), C(foreign), ...); C(link) and C(link_target); C(cuda) and C(ucx),
    the folders with their headers.
  returned: success
  type: dict
"""

import os
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard.cluster.session_environment import rewrite
from ansible.module_utils.trainyard_node.machine.files import read_files
from ansible.module_utils.trainyard_node.machine.packages import missing_packages
from ansible.module_utils.trainyard_node.machine.tree import Tree
from ansible.module_utils.trainyard_node.software.build_prefix import read_place
from ansible.module_utils.trainyard_node.software.installed_openmpi import read_mpi, read_mpi_of

HEADERS = {"cuda": "include/cuda.h", "ucx": "include/ucp/api/ucp.h"}
FOLDERS = {"cuda": ["/usr/local/cuda", "/usr"], "ucx": ["/opt/ucx", "/usr/local", "/usr"]}


def folder(name: str, setting: str) -> str:
    """Return the folder that holds the headers."""
    if setting == "none":
        return ""
    places = FOLDERS[name] if setting == "auto" else [setting]
    return next((place for place in places if Path(place, HEADERS[name]).exists()), "")


def session_differs(session: dict[str, Any]) -> bool:
    """Return whether session_environment would change something, or report a file that cannot be read."""
    if not session:
        return False
    file = Path(session["file"])
    before = file.read_text() if file.exists() else ""
    try:
        return before != rewrite(before, session["user"], session["name"], session)
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
