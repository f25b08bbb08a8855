#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Ansible module node_proof: prove on a running node that names and limits are what the cluster needs. Read-only."""
from __future__ import annotations

DOCUMENTATION = r"""
module: node_proof
short_description: Prove names and limits on a running node
description:
  - Resolves the names of all nodes as a program would, and measures the limits inside a fresh session of the training
    user and inside a fresh systemd service.
  - Does not fail; it returns the findings, so that those of all nodes can be reported together.
options:
  host:
    description: Inventory name of this node, for the findings.
    type: str
    required: true
  entries:
    description: One record for each node with C(address) and C(names).
    type: list
    elements: dict
    required: true
  user:
    description: The training user.
    type: str
    required: true
  memlock:
    description: The limit that shall hold, V(unlimited) or KiB.
    type: str
    required: true
  nofile:
    description: The limit that shall hold.
    type: str
    required: true
  systemd:
    description: Whether systemd runs the services.
    type: bool
    required: true
extends_documentation_fragment: read_only
author: trainyard
"""

EXAMPLES = r"""
- name: Prove names and limits
  node_proof:
    host: "{{ inventory_hostname }}"
    entries: [{address: 10.77.0.2, names: [n1]}]
    user: train
    memlock: unlimited
    nofile: "1048576"
    systemd: true
  register: proof
"""

RETURN = r"""
findings:
  description: What is not as it shall be, with C(host), C(check), C(found), C(expected) and C(action).
  returned: success
  type: list
  elements: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard_node.proof import limit_findings, name_findings
from ansible.module_utils.trainyard_node.tree import Tree


def main() -> None:
    """Measure and return the findings."""
    module = AnsibleModule(
        argument_spec={
            "host": {"type": "str", "required": True},
            "entries": {"type": "list", "elements": "dict", "required": True},
            "user": {"type": "str", "required": True},
            "memlock": {"type": "str", "required": True},
            "nofile": {"type": "str", "required": True},
            "systemd": {"type": "bool", "required": True},
        },
        supports_check_mode=True,
    )
    given = module.params
    wanted = {"memlock": given["memlock"], "nofile": given["nofile"]}
    findings = name_findings(given["host"], given["entries"])
    findings += limit_findings(Tree("/"), given["host"], given["user"], wanted, given["systemd"])
    module.exit_json(changed=False, findings=[finding.as_dict() for finding in findings])


if __name__ == "__main__":
    main()
