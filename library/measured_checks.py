#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Turn what benchmarks and pairs measured into checks of a proof."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: measured_checks
short_description: Turn what benchmarks and pairs measured into checks of a proof
description:
  - Returns checks of the phase C(bandwidth) for the records of benchmarks, and of the phase C(stragglers) for the
    judgement on pairs of nodes.
  - Runs on the controller, reads nothing and changes nothing.
version_added: "0.2.0"
options:
  benchmarks:
    description: Records, as M(collective_benchmark) returns them.
    type: list
    elements: dict
    default: []
  stragglers:
    description: The judgement on pairs, as C(playbooks/pair_check.yml) leaves it.
    type: dict
    default: {}
  again:
    description: Command that measures again.
    type: str
    required: true
extends_documentation_fragment: read_only
author:
  - trainyard
"""

EXAMPLES = r"""
- name: Turn records into checks
  measured_checks:
    benchmarks: "{{ benchmark_records }}"
    again: ansible-playbook playbooks/verify.yml -i inventories/mine
  register: bandwidth
"""

RETURN = r"""
checks:
  description: The checks.
  returned: success
  type: list
  elements: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard.verify.measured import benchmark_checks, straggler_checks


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "benchmarks": {"type": "list", "elements": "dict", "default": []},
            "stragglers": {"type": "dict", "default": {}},
            "again": {"type": "str", "required": True},
        },
        supports_check_mode=True,
    )
    checks = []
    for record in module.params["benchmarks"]:
        checks += benchmark_checks(record, module.params["again"])
    if module.params["stragglers"]:
        checks += straggler_checks(module.params["stragglers"], module.params["again"])
    module.exit_json(changed=False, checks=[check.as_dict() for check in checks])


if __name__ == "__main__":
    main()
