#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Read a node's Open MPI and what a build would find, and start a program of it over all nodes."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: openmpi
short_description: Read a node's Open MPI, and start a program of it over all nodes
description: Each step takes its own options and rejects those of the others.
options:
  step:
    description:
      - V(read) returns the node's C(mpirun), at O(link) first, the content of O(prefix), and the folders with headers
        of O(cuda) and O(ucx). It returns those of O(packages) that O(package_manager) has not installed, the attributes
        of O(files), and whether O(session) differs. O(host) is returned.
      - V(verify) starts one process for each of O(slots) on O(hosts) by O(mpirun), as O(user) over its ssh in
        O(network), with O(libraries) and O(environment), for at most O(timeout). They sum their ranks by
        C(MPI_Allreduce). The filter C(openmpi_ranks_findings) checks what they print.
    type: str
    choices: [read, verify]
    required: true
  host: {description: The node's name in the inventory., type: str}
  link: {description: "Link to the prefix in use, the first place to find C(mpirun).", type: path}
  prefix: {description: Prefix of a build., type: path}
  cuda: {description: "C(auto), C(none), or the folder of the CUDA toolkit.", type: str, default: auto}
  ucx: {description: "C(auto), C(none), or the folder of UCX.", type: str, default: auto}
  packages: {description: Packages of the operating system., type: list, elements: str, default: []}
  package_manager: {description: Ansible's fact C(pkg_mgr)., type: str, default: ""}
  files: {description: "Files whose owner, mode and digest are read.", type: list, elements: str, default: []}
  session: {description: Arguments of M(session_environment); empty for none., type: dict, default: {}}
  hosts: {description: Inventory names of all nodes., type: list, elements: str}
  mpirun: {description: Path of this node's C(mpirun)., type: path}
  user: {description: The training user., type: str}
  slots: {description: Processes on each node., type: int, default: 2}
  network: {description: Network (CIDR) to use; empty for Open MPI's choice., type: str, default: ""}
  libraries:
    description: LD_LIBRARY_PATH of an Open MPI outside the system's folders.
    type: list
    elements: str
    default: []
  environment: {description: Variables that Open MPI needs to find its own files., type: dict, default: {}}
  timeout: {description: Seconds after which the check has failed., type: int, default: 60}
extends_documentation_fragment: read_only
"""

EXAMPLES = r"""
- name: Read which Open MPI the node has
  openmpi:
    step: read
    host: "{{ inventory_hostname }}"
    link: /opt/trainyard/openmpi
    prefix: /opt/trainyard/openmpi-4.1.8
  register: openmpi

- name: Start one process for each slot on all nodes
  openmpi:
    step: verify
    hosts: "{{ ansible_play_hosts }}"
    mpirun: "{{ openmpi.state.mpi.path }}"
    user: train
  run_once: true
  register: ranks
"""

RETURN = r"""
missing_packages:
  description: Those of O(packages) that are not installed.
  returned: read
  type: list
  elements: str
files:
  description: Attributes of O(files) by path (kind, owner, uid, group, gid, mode, sha256).
  returned: read
  type: dict
session_differs:
  description: Whether M(session_environment) would change something.
  returned: read
  type: bool
state:
  description: >-
    The node's C(host), C(hostname), C(platform) (equal where one build serves), C(cpus) and C(free_mb) for a build;
    C(mpi) and C(in_prefix), version and path of the mpirun in use and in O(prefix), or null; C(record) of this role's
    build; C(prefix_kind) and C(link_kind) (C(none), C(foreign), ...); C(link) and C(link_target); C(cuda) and C(ucx),
    the folders with their headers.
  returned: read
  type: dict
status: {description: Exit status of C(mpirun); 124 if it did not end in time., returned: verify, type: int}
output: {description: What it and the processes printed., returned: verify, type: str}
"""

import os
import subprocess
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule, _load_params
from ansible.module_utils.trainyard.cluster.session_environment import rewrite
from ansible.module_utils.trainyard.cluster.ssh_options import UNATTENDED
from ansible.module_utils.trainyard_node.cluster.ssh_logins import as_user
from ansible.module_utils.trainyard_node.machine.files import read_files
from ansible.module_utils.trainyard_node.machine.packages import missing_packages
from ansible.module_utils.trainyard_node.machine.step_options import options_of_step
from ansible.module_utils.trainyard_node.machine.tree import Tree
from ansible.module_utils.trainyard_node.software.build_prefix import read_place
from ansible.module_utils.trainyard_node.software.installed_openmpi import read_mpi, read_mpi_of

TEXTS = {"type": "list", "elements": "str", "default": []}
STEPS = {
    "read": {
        "host": {"type": "str", "required": True},
        "link": {"type": "path", "required": True},
        "prefix": {"type": "path", "required": True},
        "cuda": {"type": "str", "default": "auto"},
        "ucx": {"type": "str", "default": "auto"},
        "packages": TEXTS,
        "package_manager": {"type": "str", "default": ""},
        "files": TEXTS,
        "session": {"type": "dict", "default": {}},
    },
    "verify": {
        "hosts": {"type": "list", "elements": "str", "required": True},
        "mpirun": {"type": "path", "required": True},
        "user": {"type": "str", "required": True},
        "slots": {"type": "int", "default": 2},
        "network": {"type": "str", "default": ""},
        "libraries": TEXTS,
        "environment": {"type": "dict", "default": {}},
        "timeout": {"type": "int", "default": 60},
    },
}
HEADERS = {"cuda": "include/cuda.h", "ucx": "include/ucp/api/ucp.h"}
FOLDERS = {"cuda": ["/usr/local/cuda", "/usr"], "ucx": ["/opt/ucx", "/usr/local", "/usr"]}
# Any MPI program would do; this one needs no compiler on the nodes. The handles are Open MPI's own symbols.
PROGRAM = """
import ctypes, os
mpi = ctypes.CDLL("libmpi.so.40", mode=ctypes.RTLD_GLOBAL)
def handle(name):
    return ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(mpi, name)))
world = handle("ompi_mpi_comm_world")
rank, size, total = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
mpi.MPI_Init(None, None)
mpi.MPI_Comm_rank(world, ctypes.byref(rank))
mpi.MPI_Comm_size(world, ctypes.byref(size))
mpi.MPI_Allreduce(ctypes.byref(rank), ctypes.byref(total), 1, handle("ompi_mpi_int"), handle("ompi_mpi_op_sum"), world)
line = f"trainyard-mpi rank {rank.value} of {size.value} on {os.uname().nodename} sum {total.value}"
os.write(1, (line + chr(10)).encode())
mpi.MPI_Finalize()
"""


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


def read(module: AnsibleModule) -> None:
    """Read the node's Open MPI."""
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


def verify(module: AnsibleModule) -> None:
    """Start the program on all nodes."""
    given = module.params
    try:
        status, output = start(given)
    except (KeyError, OSError) as error:
        module.fail_json(msg=f"mpirun could not be started as {given['user']}: {error}")
    module.exit_json(changed=False, status=status, output=output)


def start(given: dict[str, Any]) -> tuple[int, str]:
    """Run the program on all nodes, and return the exit status and the output."""
    settings = as_user(given["user"])
    # Open MPI 4 reads the OMPI names, 5 for its run time the PRTE ones; each ignores what it does not know.
    agent = f"ssh {UNATTENDED}"
    settings["env"].update({"OMPI_MCA_plm_rsh_agent": agent, "PRTE_MCA_plm_ssh_agent": agent})
    settings["env"].update({name: str(value) for name, value in given["environment"].items()})
    if given["libraries"]:
        known = settings["env"].get("LD_LIBRARY_PATH")
        settings["env"]["LD_LIBRARY_PATH"] = ":".join([*given["libraries"], *([known] if known else [])])
    if given["network"]:
        for name in ("OMPI_MCA_oob_tcp_if_include", "OMPI_MCA_btl_tcp_if_include", "PRTE_MCA_prte_if_include"):
            settings["env"][name] = given["network"]
    hosts = ",".join(f"{host}:{given['slots']}" for host in given["hosts"])
    # A node may have more slots than cores, so processes are not bound.
    argv = [given["mpirun"], "-H", hosts, "--bind-to", "none", "python3", "-c", PROGRAM]
    try:
        done = subprocess.run(
            argv,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=given["timeout"],
            **settings,
        )
    except subprocess.TimeoutExpired as error:
        return 124, (error.stdout or b"").decode("utf-8", "replace")
    return done.returncode, done.stdout.decode("utf-8", "replace")


def main() -> None:
    """Run the step."""
    module = AnsibleModule(argument_spec=options_of_step(STEPS, _load_params()), supports_check_mode=True)
    {"read": read, "verify": verify}[module.params["step"]](module)


if __name__ == "__main__":
    main()
