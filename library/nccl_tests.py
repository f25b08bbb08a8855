#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Read what nccl-tests of a node are built from or would be, and what their programs answer."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: nccl_tests
short_description: Read what nccl-tests of a node are built from, and what their programs answer
description: Each step takes its own options and rejects those of the others.
options:
  step:
    description:
      - V(read) returns CUDA, NCCL and Open MPI with their versions, which it finds in O(software), O(cuda_home),
        O(nccl_home) and O(mpi_home); the missing O(tools) of a build; and the content of O(prefix).
      - V(probe) reads the libraries (C(ldd)) and flags (C(--help)) of O(programs) of O(host), as O(user) and without an
        C(LD_LIBRARY_PATH); then it runs the first one as a single rank over eight bytes.
    type: str
    choices: [read, probe]
    required: true
  prefix: {description: Where nccl-tests are or will be; the programs lie in C(bin)., type: path, required: true}
  software:
    description: Folder of the links C(cuda), C(nccl) and C(openmpi), which are read first.
    type: path
    default: /opt/trainyard
  cuda_home: {description: The CUDA toolkit's folder; empty to search it., type: str, default: ""}
  nccl_home: {description: Folder of NCCL's C(include) and C(lib); empty to search it., type: str, default: ""}
  mpi_home: {description: Folder of Open MPI's C(include) and C(lib); empty to search it., type: str, default: ""}
  tools: {description: Programs that a build needs., type: list, elements: str, default: []}
  host: {description: The node's name in the inventory., type: str}
  programs: {description: Names of the programs., type: list, elements: str}
  user: {description: User who runs them., type: str}
extends_documentation_fragment: read_only
"""

EXAMPLES = r"""
- name: See what there is to build with
  nccl_tests: {step: read, prefix: /opt/trainyard/nccl-tests, tools: [make, g++]}
  register: state

- name: Read the programs
  nccl_tests:
    step: probe
    host: "{{ inventory_hostname }}"
    prefix: /opt/trainyard/nccl-tests
    programs: [all_reduce_perf_mpi, all_gather_perf_mpi]
    user: train
  register: probe
"""

RETURN = r"""
state:
  description: >-
    C(platform), C(cpus), C(free_mb), C(record), C(prefix_kind), C(cuda), C(nccl), C(mpi), C(missing) (tools).
  returned: read
  type: dict
probe:
  description: C(host), C(prefix), C(bin), C(record), C(prefix_kind), C(gpus), C(programs) and C(run).
  returned: probe
  type: dict
"""

import platform
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule, _load_params
from ansible.module_utils.trainyard.nvidia.nccl_tests import PARTS
from ansible.module_utils.trainyard_node.cluster.ssh_logins import as_user
from ansible.module_utils.trainyard_node.machine.step_options import options_of_step
from ansible.module_utils.trainyard_node.machine.tree import Tree
from ansible.module_utils.trainyard_node.nvidia.nccl_tests_probe import gpu_nodes, probe_program, read_part, run_program
from ansible.module_utils.trainyard_node.software.build_prefix import read_place

PREFIX = {"prefix": {"type": "path", "required": True}}
STEPS = {
    "read": {
        **PREFIX,
        "software": {"type": "path", "default": "/opt/trainyard"},
        **{f"{name}_home": {"type": "str", "default": ""} for name in PARTS},
        "tools": {"type": "list", "elements": "str", "default": []},
    },
    "probe": {
        **PREFIX,
        "host": {"type": "str", "required": True},
        "programs": {"type": "list", "elements": "str", "required": True},
        "user": {"type": "str", "required": True},
    },
}


def read(module: AnsibleModule) -> None:
    """Read what a build has and needs."""
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


def probe(module: AnsibleModule) -> None:
    """Read the programs, and run one."""
    given = module.params
    folder = f"{given['prefix']}/bin"
    place = read_place(Path(given["prefix"]))
    programs, run = {}, None
    if place["record"]:
        try:
            settings = as_user(given["user"])
        except (KeyError, PermissionError) as error:
            module.fail_json(
                msg=f"{given['host']}: the programs cannot be run as {given['user']}: {error}. Expected a user of the "
                "node that tasks may act as: run the role node_baseline, or set nccl_tests_user."
            )
        programs = {name: probe_program(f"{folder}/{name}", settings) for name in given["programs"]}
        name = given["programs"][0]
        if programs[name]["exists"] and not programs[name]["missing"]:
            run = run_program(f"{folder}/{name}", settings)
    module.exit_json(
        changed=False,
        probe={
            "host": given["host"],
            "prefix": given["prefix"],
            "bin": folder,
            "record": place["record"],
            "prefix_kind": place["prefix_kind"],
            "gpus": gpu_nodes(Tree()),
            "programs": programs,
            "run": run,
        },
    )


def main() -> None:
    """Run the step."""
    module = AnsibleModule(argument_spec=options_of_step(STEPS, _load_params()), supports_check_mode=True)
    {"read": read, "probe": probe}[module.params["step"]](module)


if __name__ == "__main__":
    main()
