#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Read which CUDA toolkits a node has, and verify one by a program with MPI and NCCL."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: cuda_toolkit
short_description: Read which CUDA toolkits a node has, and verify one by a program
description: Each step takes its own options and rejects those of the others.
options:
  step:
    description:
      - V(read) returns the toolkits in C(/usr/local/cuda-X.Y), below O(cuda_root) and in O(homes), the default among
        them, the host O(compiler), Open MPI and NCCL, and the ssh sessions of O(user). O(root) may be a captured
        machine.
      - V(verify) compiles and links O(source) with the toolkit in O(home), Open MPI (O(mpi)) and NCCL (O(nccl)) where
        O(state) has those, and with O(compiler) and O(rpath). It runs it as O(user), one process for each of O(gpus),
        and leaves nothing behind. O(build_timeout) and O(run_timeout) end it. O(host) is named in findings.
    type: str
    choices: [read, verify]
    required: true
  cuda_root:
    description: Folder of the link C(cuda) to the default toolkit, and of the toolkits that the role installs.
    type: path
  homes: {description: Further folders of toolkits., type: list, elements: str, default: []}
  compiler:
    description: Host compiler that nvcc is to use. Empty for C(g++), or for the one that nvcc takes.
    type: str
    default: ""
  user:
    description: User whose ssh sessions are checked, empty for none; or who compiles and runs the program.
    type: str
    default: ""
  host: {description: The node's name in the inventory., type: str}
  source: {description: The program., type: str}
  state: {description: RV(state) of this node., type: dict}
  home: {description: The toolkit., type: str}
  gpus:
    description: GPUs that the inventory declares, V(auto) for those on the PCI bus, or a number.
    type: str
    default: auto
  mpi: {description: Whether to use Open MPI where it is there., type: bool, default: true}
  nccl: {description: Whether to use NCCL where it is there., type: bool, default: true}
  rpath:
    description: Write the path of the toolkit's libraries into the program, where the system does not search them.
    type: bool
    default: false
  build_timeout: {description: Seconds for the compiler., type: int, default: 300}
  run_timeout: {description: Seconds for the program., type: int, default: 120}
extends_documentation_fragment: [captured_machine, read_only]
"""

EXAMPLES = r"""
- name: See which toolkits the node has
  cuda_toolkit: {step: read, cuda_root: /opt/trainyard}
  register: found

- name: Verify the default toolkit
  cuda_toolkit:
    step: verify
    host: "{{ inventory_hostname }}"
    source: "{{ lookup('ansible.builtin.file', 'verify.cu') }}"
    state: "{{ found.state }}"
    home: /usr/local/cuda-12.4
    user: train
    gpus: "8"
  register: program
"""

RETURN = r"""
state:
  description: >-
    C(os), C(family), C(arch), C(root), C(toolkits), C(default),
    C(default_kind), C(compiler), C(compilers), C(free_mib), C(gpus), C(mpi), C(session), C(nccl).
  returned: read
  type: dict
program:
  description: >-
    C(build) and C(run), each V(pass), V(fail), V(unknown) or V(skipped) (a node that declares no GPU), C(detail), and
    C(with), the libraries besides CUDA.
  returned: verify
  type: dict
findings:
  description: All findings, each with host, check, found, expected and action.
  returned: verify
  type: list
  elements: dict
"""

from ansible.module_utils.basic import AnsibleModule, _load_params
from ansible.module_utils.trainyard.nvidia.cuda_verify import check_program, expected_gpus
from ansible.module_utils.trainyard_node.machine.step_options import options_of_step
from ansible.module_utils.trainyard_node.machine.tree import Tree
from ansible.module_utils.trainyard_node.nvidia import cuda_test_program
from ansible.module_utils.trainyard_node.nvidia.cuda_toolkits import read_cuda

COMPILER = {"compiler": {"type": "str", "default": ""}}
STEPS = {
    "read": {
        **COMPILER,
        "cuda_root": {"type": "path", "required": True},
        "homes": {"type": "list", "elements": "str", "default": []},
        "user": {"type": "str", "default": ""},
        "root": {"type": "path", "default": "/"},
    },
    "verify": {
        **COMPILER,
        **{name: {"type": "str", "required": True} for name in ("host", "source", "home", "user")},
        "state": {"type": "dict", "required": True},
        "gpus": {"type": "str", "default": "auto"},
        "mpi": {"type": "bool", "default": True},
        "nccl": {"type": "bool", "default": True},
        "rpath": {"type": "bool", "default": False},
        "build_timeout": {"type": "int", "default": 300},
        "run_timeout": {"type": "int", "default": 120},
    },
}


def read(module: AnsibleModule) -> None:
    """Read the toolkits."""
    given = module.params
    names = ("cuda_root", "homes", "compiler", "user")
    state = read_cuda(Tree(given["root"]), *(given[name] for name in names))
    module.exit_json(changed=False, state=state)


def verify(module: AnsibleModule) -> None:
    """Compile and run the program."""
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
        program = cuda_test_program.verify(given["source"], state, request)
    except KeyError:
        module.fail_json(msg=f"{host}: there is no user {given['user']}; run the role node_baseline first.")
    except OSError as error:
        module.fail_json(msg=f"{host}: the program could not be compiled as {given['user']}: {error}")
    found, findings = check_program(host, program, declared, on_the_bus)
    module.exit_json(
        changed=False, program={**found, "with": program["with"]}, findings=[finding.as_dict() for finding in findings]
    )


def main() -> None:
    """Run the step."""
    module = AnsibleModule(argument_spec=options_of_step(STEPS, _load_params()), supports_check_mode=True)
    {"read": read, "verify": verify}[module.params["step"]](module)


if __name__ == "__main__":
    main()
