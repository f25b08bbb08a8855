#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Compile, link and run a CUDA program with MPI and NCCL on a node, as the training user."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: cuda_toolkit_verify
short_description: Verify a CUDA toolkit by a program with MPI and NCCL
description:
  - Compiles and links O(source) with the toolkit, Open MPI and NCCL where those are there, and runs it, one process for
    each GPU. Leaves nothing behind.
options:
  source:
    description: The program.
    type: str
    required: true
  state:
    description: What M(cuda_toolkit_state) returned of this node.
    type: dict
    required: true
  home:
    description: The toolkit.
    type: str
    required: true
  user:
    description: User who compiles and runs it.
    type: str
    required: true
  gpus:
    description: GPUs that the inventory declares, V(auto) for those on the PCI bus, or a number.
    type: str
    default: auto
  compiler:
    description: Host compiler. Empty for the one that nvcc takes.
    type: str
    default: ""
  mpi:
    description: Whether to use Open MPI where it is there.
    type: bool
    default: true
  nccl:
    description: Whether to use NCCL where it is there.
    type: bool
    default: true
  rpath:
    description: Write the path of the toolkit's libraries into the program, where the system does not search them.
    type: bool
    default: false
  build_timeout:
    description: Seconds for the compiler.
    type: int
    default: 300
  run_timeout:
    description: Seconds for the program.
    type: int
    default: 120
extends_documentation_fragment: [inventory_name, read_only]
"""

EXAMPLES = r"""
- name: Verify the default toolkit
  cuda_toolkit_verify:
    host: "{{ inventory_hostname }}"
    source: "{{ lookup('ansible.builtin.file', 'verify.cu') }}"
    state: "{{ found.state }}"
    home: /usr/local/cuda-12.4
    user: train
    gpus: "8"
  register: program
"""

RETURN = r"""
program:
  description: >-
    C(build) and C(run), each V(pass), V(fail), V(unknown) or V(skipped) (a node that declares no GPU), C(detail), and
    C(with), the libraries besides CUDA.
  returned: success
  type: dict
findings:
  description: All findings, each with host, check, found, expected and action.
  returned: success
  type: list
  elements: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard.nvidia.cuda_verify import check_program, expected_gpus
from ansible.module_utils.trainyard_node.nvidia.cuda_test_program import verify


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "host": {"type": "str", "required": True},
            "source": {"type": "str", "required": True},
            "state": {"type": "dict", "required": True},
            "home": {"type": "str", "required": True},
            "user": {"type": "str", "required": True},
            "gpus": {"type": "str", "default": "auto"},
            "compiler": {"type": "str", "default": ""},
            "mpi": {"type": "bool", "default": True},
            "nccl": {"type": "bool", "default": True},
            "rpath": {"type": "bool", "default": False},
            "build_timeout": {"type": "int", "default": 300},
            "run_timeout": {"type": "int", "default": 120},
        },
        supports_check_mode=True,
    )
    given = module.params
    state, declared = given["state"], given["gpus"]
    host, on_the_bus = given["host"], int(state["gpus"])
    if declared != "auto" and not declared.isdigit():
        module.fail_json(msg=f"{host}: nvidia_gpus is {declared!r}, expected auto, 0 or the number of GPUs.")
    request = {
        **{name: given[name] for name in ("user", "home", "compiler", "mpi", "nccl", "rpath")},
        "root": state["root"],
        "gpus": expected_gpus(declared, on_the_bus),
        "build_seconds": given["build_timeout"],
        "run_seconds": given["run_timeout"],
    }
    try:
        program = verify(given["source"], state, request)
    except KeyError:
        module.fail_json(msg=f"{host}: there is no user {given['user']}; run the role node_baseline first.")
    except OSError as error:
        module.fail_json(msg=f"{host}: the program could not be compiled as {given['user']}: {error}")
    found, findings = check_program(host, program, declared, on_the_bus)
    module.exit_json(
        changed=False, program={**found, "with": program["with"]}, findings=[finding.as_dict() for finding in findings]
    )


if __name__ == "__main__":
    main()
