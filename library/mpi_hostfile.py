#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Ansible module mpi_hostfile: write, read or remove the hostfile of an MPI or DeepSpeed launcher."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: mpi_hostfile
short_description: Write, read or remove the hostfile of an MPI or DeepSpeed launcher
description:
  - Writes a file that names hosts with their slots, in the notation of Open MPI, MPICH (Hydra) or DeepSpeed.
  - Reads any such file, and lists every problem with its line.
options:
  path:
    description: The hostfile.
    type: path
    required: true
  state:
    description: >-
      V(present) writes the file, V(absent) removes it. V(parsed) reads it, and does not fail because of problems in it.
    type: str
    choices: [present, parsed, absent]
    default: present
  hosts:
    description: The hosts in the order of their ranks. Required, and not empty, with O(state=present).
    type: list
    elements: dict
    suboptions:
      name:
        description: Name or address.
        type: str
        required: true
      slots:
        description: Number of processes on the host; without it the launcher decides.
        type: int
      max_slots:
        description: Upper limit of processes on the host, for Open MPI only.
        type: int
  flavor:
    description: Notation to write. V(parsed) reads all of them.
    type: str
    choices: [openmpi, mpich, deepspeed]
    default: openmpi
  overwrite:
    description: With O(state=present), replace a file that differs; V(false) fails and leaves it.
    type: bool
    default: true
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
extends_documentation_fragment:
  - ansible.builtin.files
"""

EXAMPLES = r"""
- name: List the nodes for mpirun
  mpi_hostfile:
    path: /var/lib/trainyard/hostfile
    hosts:
      - {name: 10.77.0.2, slots: 8}
      - {name: 10.77.0.3, slots: 8, max_slots: 8}
"""

RETURN = r"""
hosts:
  description: The hosts in the file, without lines that have a problem.
  returned: when O(state=parsed) or O(state=present)
  type: list
  elements: dict
problems:
  description: All problems in the file, C(line) (from 1) and C(text).
  returned: when O(state=parsed)
  type: list
  elements: dict
"""

from dataclasses import asdict
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard.base.findings import failure
from ansible.module_utils.trainyard.job.placement.hostfile import FLAVORS, MpiHost, faults, parse, render
from ansible.module_utils.trainyard.software.file_differences import taken
from ansible.module_utils.trainyard_node.machine.owned_file import difference, remove, write


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "state": {"type": "str", "choices": ["present", "parsed", "absent"], "default": "present"},
            "hosts": {
                "type": "list",
                "elements": "dict",
                "options": {
                    "name": {"type": "str", "required": True},
                    "slots": {"type": "int"},
                    "max_slots": {"type": "int"},
                },
            },
            "flavor": {"type": "str", "choices": list(FLAVORS), "default": "openmpi"},
            "overwrite": {"type": "bool", "default": True},
        },
        required_if=[("state", "present", ("hosts",))],
        add_file_common_args=True,
        supports_check_mode=True,
    )
    path, state = Path(module.params["path"]), module.params["state"]
    try:
        before = path.read_bytes()
    except FileNotFoundError:
        before = None
    except OSError as error:
        module.fail_json(msg=f"{path} cannot be read: {error.strerror}. Expected a hostfile, or no file.")
    if state == "parsed":
        if before is None:
            module.fail_json(msg=f"no {path}. Expected a hostfile to read.")
        # A site's comments may hold any bytes.
        hosts, problems = parse((before or b"").decode("utf-8", errors="surrogateescape"))
        module.exit_json(
            changed=False,
            hosts=[asdict(host) for host in hosts],
            problems=[{"line": line, "text": text} for line, wrong in problems.items() for text in wrong],
        )
    if state == "absent":
        module.exit_json(changed=remove(module, path), diff=difference(path, before, b""))

    hosts = [MpiHost(host["name"], host["slots"], host["max_slots"]) for host in module.params["hosts"]]
    wrong = faults(hosts, module.params["flavor"])
    if wrong or not hosts:
        module.fail_json(msg=f"{path} was not written: {'; '.join(wrong) or 'no hosts'}. Correct the hosts.")
    after = render(hosts, module.params["flavor"]).encode()
    if before not in (None, after) and not module.params["overwrite"]:
        module.fail_json(**failure([taken(str(path), "hostfile")], "The hostfile was not written: {count} {findings}."))
    module.exit_json(
        changed=write(module, path, before, after),
        hosts=[asdict(host) for host in hosts],
        diff=difference(path, before, after),
    )


if __name__ == "__main__":
    main()
