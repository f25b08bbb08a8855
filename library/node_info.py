#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Read everything that a job plan needs to know of one node."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: node_info
short_description: Read all facts of a node that a job plan needs
description:
  - Returns the machine, its accelerators, networks and Open MPI, the versions of Python distributions in a venv, and
    free TCP ports.
  - Starts at most one process (C(ip)) on a node without accelerators and MPI, imports no framework, and works for an
    unprivileged user, who may not see links and addresses of Ascend devices.
  - Errors are in C(problems) of each part.
options:
  venv:
    description: Virtual environment with the O(packages). The default is the Python that runs the module.
    type: path
  packages: {description: Names of Python distributions., type: list, elements: str, default: []}
  user:
    description: User whose C(~/.nccl.conf) applies to a job. The default is the user that runs the module.
    type: str
  mpi_prefix:
    description: Where Open MPI was installed from source; it is preferred to C(PATH) and the system's packages.
    type: path
  as_json: {description: "Return RV(node) as JSON text, which takes less memory.", type: bool, default: false}
extends_documentation_fragment: [captured_machine, read_only]
seealso:
  - module: accelerator_info
  - module: network_info
  - module: npu_info
"""

EXAMPLES = r"""
- name: Read what the plan of a PyTorch job needs
  node_info:
    venv: /opt/trainyard/venvs/pytorch
    packages: [torch, numpy]
    user: train
  register: node
"""

RETURN = r"""
node:
  description: The facts of the node; a text with O(as_json).
  returned: success
  type: dict
  contains:
    hostname: {description: Kernel host name., type: str}
    boot_id: {description: The kernel's boot id; containers share that of their machine., type: str}
    kernel: {description: Release of the running kernel., type: str}
    machine: {description: Hardware name such as C(x86_64)., type: str}
    python: {description: Version of the Python that ran the module., type: str}
    cpus: {description: Number of CPUs that the calling process may use., type: int}
    memory_mib: {description: Memory in MiB., type: int}
    service_manager: {description: C(systemd) if the user may create system units; else C(none)., type: str}
    container: {description: Engine of the container; empty on a machine., type: str}
    uid: {description: User id that ran the module., type: int}
    user: {description: User that ran the module., type: str}
    venv: {description: "C(path), C(exists) and C(python) version of O(venv); null without it.", type: dict}
    packages: {description: Version of each distribution; null if it is not installed., type: dict}
    build_tools: {description: "C(Python.h), C(c++), C(ninja) that O(venv) finds.", type: list, elements: str}
    accelerators: {description: "As M(accelerator_info) returns it, without C(count).", type: dict}
    networks: {description: As M(network_info) returns it., type: dict}
    cuda_home: {description: The CUDA toolkit that the role cuda_toolkit installed; empty without one., type: str}
    mpi: {description: C(version) and C(path) of Open MPI's C(mpirun); null without one., type: dict}
    npu: {description: Ascend devices as M(npu_info) returns them; empty without devices., type: dict}
    unused_ports: {description: "Longest ranges of unused TCP ports, such as 10000-32767.", type: str}
    fingerprint: {description: "SHA-256 of facts that change rarely, for the same options and user.", type: str}
"""

import json

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard_node.cluster.node import read_node
from ansible.module_utils.trainyard_node.machine.tree import Tree


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "venv": {"type": "path"},
            "packages": {"type": "list", "elements": "str", "default": []},
            "user": {"type": "str"},
            "mpi_prefix": {"type": "path"},
            "as_json": {"type": "bool", "default": False},
            "root": {"type": "path", "default": "/"},
        },
        supports_check_mode=True,
    )
    node = read_node(
        Tree(module.params["root"]),
        packages=module.params["packages"],
        venv=module.params["venv"],
        user=module.params["user"],
        mpi_prefix=module.params["mpi_prefix"],
    )
    module.exit_json(changed=False, node=json.dumps(node) if module.params["as_json"] else node)


if __name__ == "__main__":
    main()
