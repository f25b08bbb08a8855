#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Judge what roles say of what they installed, over all nodes."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: software_verdict
short_description: Judge what roles say of what they installed, over all nodes
description:
  - Turns the outcomes of the roles' own proofs (C(tasks_from=verify)) into checks, one for each role, or for each
    different fault of it.
  - Runs on the controller, reads nothing and changes nothing.
version_added: "0.2.0"
options:
  roles:
    description: By role that was to be proved, the hosts it was to be proved on.
    type: dict
    required: true
  outcomes:
    description: >-
      By host that answered, by role, C(fault) (the role's message, empty where it holds) and C(all), whether that
      message judges all nodes together.
    type: dict
    required: true
  again:
    description: Command that proves the cluster again.
    type: str
    required: true
extends_documentation_fragment: read_only
author:
  - trainyard
"""

EXAMPLES = r"""
- name: Judge what the roles say
  software_verdict:
    roles: {pytorch: [n1, n2]}
    outcomes: {n1: {pytorch: {fault: ""}}, n2: {pytorch: {fault: "torch 2.12.0, expected 2.13.0", all: false}}}
    again: ansible-playbook site.yml -i inventories/mine
  delegate_to: localhost
  run_once: true
  register: software
"""

RETURN = r"""
checks:
  description: Checks of the phase C(software).
  returned: success
  type: list
  elements: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard.verify.software import judge


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "roles": {"type": "dict", "required": True},
            "outcomes": {"type": "dict", "required": True},
            "again": {"type": "str", "required": True},
        },
        supports_check_mode=True,
    )
    outcomes = module.params["outcomes"]
    checks = []
    for role, hosts in module.params["roles"].items():
        of_role = {host: said[role] for host, said in outcomes.items() if role in said}
        checks += judge(role, hosts, of_role, module.params["again"])
    module.exit_json(changed=False, checks=[check.as_dict() for check in checks])


if __name__ == "__main__":
    main()
