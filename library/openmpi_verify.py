#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Start a program of Open MPI over the nodes: one process for each slot, and a sum over all ranks."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: openmpi_verify
short_description: Start a program of Open MPI over all nodes
description:
  - Starts one process for each slot by this node's C(mpirun), as the training user over its ssh, and has them sum their
    ranks by C(MPI_Allreduce). The filter C(openmpi_ranks_findings) checks what they print.
options:
  hosts:
    description: Inventory names of all nodes.
    type: list
    elements: str
    required: true
  mpirun:
    description: Path of this node's C(mpirun).
    type: path
    required: true
  user:
    description: The training user.
    type: str
    required: true
  slots:
    description: Processes on each node.
    type: int
    default: 2
  network:
    description: Network (CIDR) to use; empty for Open MPI's choice.
    type: str
    default: ""
  libraries:
    description: LD_LIBRARY_PATH of an Open MPI outside the system's folders.
    type: list
    elements: str
    default: []
  environment:
    description: Variables that Open MPI needs to find its own files.
    type: dict
    default: {}
  timeout:
    description: Seconds after which the check has failed.
    type: int
    default: 60
extends_documentation_fragment: read_only
"""

EXAMPLES = r"""
- name: Start one process for each slot on all nodes
  openmpi_verify:
    hosts: "{{ ansible_play_hosts }}"
    mpirun: "{{ openmpi.state.mpi.path }}"
    user: train
  run_once: true
  register: ranks
"""

RETURN = r"""
status:
  description: Exit status of C(mpirun); 124 if it did not end in time.
  returned: success
  type: int
output:
  description: What it and the processes printed.
  returned: success
  type: str
"""

import subprocess
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard.cluster.ssh_options import UNATTENDED
from ansible.module_utils.trainyard_node.cluster.ssh_logins import as_user

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


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "hosts": {"type": "list", "elements": "str", "required": True},
            "mpirun": {"type": "path", "required": True},
            "user": {"type": "str", "required": True},
            "slots": {"type": "int", "default": 2},
            "network": {"type": "str", "default": ""},
            "libraries": {"type": "list", "elements": "str", "default": []},
            "environment": {"type": "dict", "default": {}},
            "timeout": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
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


if __name__ == "__main__":
    main()
