#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Read everything that a job plan needs to know of one node."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: node_info
short_description: Read everything that a job plan needs to know of one node
description:
  - Returns the machine, its accelerators, its networks, its Open MPI, the versions of Python distributions in a venv
    and free TCP ports, in one call.
  - Reads only. Starts at most one process (C(ip)) on a node without accelerators, one more (C(mpirun --version)) where
    there is an MPI, imports no framework, and works for an unprivileged user (who may not be told links and addresses
    of Ascend devices).
  - What is broken (a driver that does not answer, a port without a readable state) is listed under C(problems) of
    its part, never left out.
options:
  venv:
    description:
      - Virtual environment whose distributions O(packages) names.
      - Without it the distributions of the Python that runs the module are read.
    type: path
  packages:
    description: Names of Python distributions whose installed version is wanted.
    type: list
    elements: str
    default: []
  user:
    description: User whose C(~/.nccl.conf) would apply to a job. Default is the user that runs the module.
    type: str
  mpi_prefix:
    description:
      - Where Open MPI was installed from source; C(mpirun) is looked for there first.
      - Without it, or where there is nothing, in C(PATH) and the folders of the system's packages.
    type: path
  as_json:
    description:
      - Return RV(node) as one JSON text, which every option that takes a dictionary reads.
      - Registered on many hosts, texts take a quarter of the memory, which Ansible copies for each task and host.
    type: bool
    default: false
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

- name: Stop where a driver is broken
  ansible.builtin.assert:
    that: node.node.accelerators.problems | length == 0
    fail_msg: "{{ inventory_hostname }}: {{ node.node.accelerators.problems | join('; ') }}"
"""

RETURN = r"""
node:
  description: The facts of the node; a text with O(as_json).
  returned: success
  type: dict
  contains:
    hostname:
      description: Host name that the kernel has.
      type: str
    boot_id:
      description: The kernel's boot id; containers share that of their machine.
      type: str
    kernel:
      description: Release of the running kernel.
      type: str
    machine:
      description: Hardware name, C(x86_64) or C(aarch64).
      type: str
    python:
      description: Version of the Python that ran the module.
      type: str
    cpus:
      description: Number of CPUs that the calling process may use.
      type: int
    memory_mib:
      description: Memory in MiB.
      type: int
    service_manager:
      description:
        - C(systemd) where PID 1 is systemd and the calling user may make system units (root), else C(none).
      type: str
    container:
      description: Engine whose container the node is, by the files that engines leave; empty on a machine of its own.
      type: str
      sample: podman
    uid:
      description: User id that ran the module.
      type: int
    user:
      description: User that ran the module.
      type: str
    venv:
      description: C(path), C(exists) and version of C(python) of O(venv); null without O(venv).
      type: dict
    packages:
      description: Version of each distribution that was asked for; null where it is not installed.
      type: dict
      sample: {torch: 2.13.0+cpu, numpy: null}
    build_tools:
      description: Those of C(Python.h), C(c++) and C(ninja) that O(venv) finds, to compile extensions with.
      type: list
      elements: str
    accelerators:
      description: As M(accelerator_info) returns it, without C(count).
      type: dict
    networks:
      description: As M(network_info) returns it.
      type: dict
    mpi:
      description: C(version) and C(path) of the C(mpirun) of Open MPI; null where there is none that answers.
      type: dict
      sample: {version: 4.1.4, path: /usr/bin/mpirun}
    npu:
      description:
        - Ascend devices as M(npu_info) returns them; empty on a node that has none.
        - What is wrong with the driver stands in RV(node.accelerators) only.
      type: dict
    unused_ports:
      description:
        - TCP ports from 10000 on that nobody uses, outside the ephemeral range and the kernel's reserved ports.
        - Of many ranges the longest.
      type: str
      sample: 10000-32767,61000-65535
    fingerprint:
      description:
        - SHA-256 of everything above that changes rarely (all but the unused ports, and virtual interfaces without an
          address, which containers come and go with).
        - Comparable between calls with the same options and user only.
      type: str
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
