#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Read libraries and flags of the nccl-tests of a node, and run one rank of them."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: nccl_tests_probe
short_description: Read libraries and flags of the nccl-tests of a node, and run one rank of them
description:
  - Reads the libraries (C(ldd)) and flags (C(--help)) of every program, as the training user and without an
    C(LD_LIBRARY_PATH); then runs the first one as a single rank over eight bytes.
options:
  prefix:
    description: Where nccl-tests are; the programs lie in C(bin).
    type: path
    required: true
  programs:
    description: Names of the programs.
    type: list
    elements: str
    required: true
  user:
    description: User who runs them.
    type: str
    required: true
extends_documentation_fragment: [inventory_name, read_only]
"""

EXAMPLES = r"""
- name: Read the programs
  nccl_tests_probe:
    host: "{{ inventory_hostname }}"
    prefix: /opt/trainyard/nccl-tests
    programs: [all_reduce_perf_mpi, all_gather_perf_mpi]
    user: train
  register: probe
"""

RETURN = r"""
probe:
  description: C(host), C(prefix), C(bin), C(record), C(prefix_kind), C(gpus), C(programs) and C(run).
  returned: success
  type: dict
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard_node.cluster.ssh_logins import as_user
from ansible.module_utils.trainyard_node.machine.tree import Tree
from ansible.module_utils.trainyard_node.nvidia.nccl_tests_probe import gpu_nodes, probe_program, run_program
from ansible.module_utils.trainyard_node.software.build_prefix import read_place


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "host": {"type": "str", "required": True},
            "prefix": {"type": "path", "required": True},
            "programs": {"type": "list", "elements": "str", "required": True},
            "user": {"type": "str", "required": True},
        },
        supports_check_mode=True,
    )
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


if __name__ == "__main__":
    main()
