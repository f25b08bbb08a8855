#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Check one node for a planned job."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: job_preflight
short_description: Check a node for a planned job before anything is started
description:
  - Checks the ports on the head, the way from every other node to the head, ssh from the head for launchers that need
    it, the Python environment, data, program and devices of the job, disk space, and other jobs on the same devices.
  - Reads only. Returns all faults at once and does not fail because of them.
version_added: "0.1.0"
options:
  slice:
    description: The node's slice of the plan, from M(job_plan).
    type: dict
    required: true
  user:
    description: The training user.
    type: str
    required: true
  mpi_prefix:
    description: What M(node_info) was given, so that its facts can be compared.
    type: path
extends_documentation_fragment: read_only
author:
  - trainyard
"""

EXAMPLES = r"""
- name: Check every node for its part of the job
  job_preflight:
    slice: "{{ plan.slices[inventory_hostname] }}"
    user: train
  register: preflight
"""

RETURN = r"""
stale:
  description: Whether the node is no longer what it was when its facts were read for the plan.
  returned: always
  type: bool
programs:
  description:
    - By the names in the command, the program and the scripts that every node has for itself, for M(job_judge) to
      compare.
    - Without those of the distribution, of the virtual environment, and of the source that is sent.
  returned: always
  type: dict
  sample:
    /srv/train.py: {path: /srv/train.py, form: script,
                    sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08}
findings:
  description: All faults of this node, each with host, check, found, expected and action.
  returned: always
  type: list
  elements: dict
  sample:
    - {host: n1, check: rendezvous port, found: 29500 is in use by sshd (pid 12),
       expected: a free TCP port on the head node, action: "set job_port: auto, or another port, or end that process"}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard_node.node import read_node
from ansible.module_utils.trainyard_node.preflight import preflight, programs
from ansible.module_utils.trainyard_node.tree import Tree


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "slice": {"type": "dict", "required": True},
            "user": {"type": "str", "required": True},
            "mpi_prefix": {"type": "path"},
        },
        supports_check_mode=True,
    )
    part, user = module.params["slice"], module.params["user"]
    findings = preflight(part, user)
    now = read_node(
        Tree(),
        packages=part["packages"],
        venv=part["venv"],
        ports=0,
        port_seed="",
        user=user,
        mpi_prefix=module.params["mpi_prefix"],
    )
    module.exit_json(
        changed=False,
        findings=[finding.as_dict() for finding in findings],
        programs=programs(part),
        stale=now["fingerprint"] != part["fingerprint"],
    )


if __name__ == "__main__":
    main()
