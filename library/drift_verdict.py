#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Compare what the nodes of a cluster should have in common."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: drift_verdict
short_description: Compare what the nodes of a cluster should have in common
description:
  - Takes what M(proof_facts) returned on every node and finds, by majority vote among nodes that can be compared, those
    that differ, with the difference.
  - Runs on the controller, once for all nodes, reads nothing and changes nothing.
version_added: "0.2.0"
options:
  results:
    description: By inventory name, what the task with M(proof_facts) brought, also where it failed.
    type: dict
    required: true
  clocks:
    description: By inventory name, what the task with C(clock_reading) brought, also where it failed.
    type: dict
    default: {}
  groups:
    description: By inventory name, the declared group of hardware; nodes without one are grouped by what they have.
    type: dict
    default: {}
  ignore:
    description: Facts and environments that are not compared, by their names.
    type: list
    elements: str
    default: []
  max_clock_offset:
    description: Seconds that a clock may be away from the median of all.
    type: float
    default: 1.0
  inventory:
    description: The options that name the inventory, for the commands in the result.
    type: str
    default: ""
extends_documentation_fragment: read_only
author:
  - trainyard
seealso:
  - module: proof_facts
"""

EXAMPLES = r"""
- name: Compare all nodes
  drift_verdict:
    results: "{{ facts_by_host }}"
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
checks:
  description: Records of module_utils/trainyard/checks.py.
  returned: success
  type: list
  elements: dict
groups:
  description: Nodes by the kinds of hardware that they were compared in.
  returned: success
  type: dict
  sample: {"10de:2330, 15b3:1021": [n1, n2]}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard.drift import groups_of, judge, judge_clocks
from ansible.module_utils.trainyard.reach import answers


def main() -> None:
    """Judge all nodes together."""
    module = AnsibleModule(
        argument_spec={
            "results": {"type": "dict", "required": True},
            "clocks": {"type": "dict", "default": {}},
            "groups": {"type": "dict", "default": {}},
            "ignore": {"type": "list", "elements": "str", "default": []},
            "max_clock_offset": {"type": "float", "default": 1.0},
            "inventory": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    given = module.params
    good, _ = answers(given["results"], "facts")
    nodes = [{**node, "host": host, "group": given["groups"].get(host, "")} for host, node in good.items()]
    checks = judge(nodes, ignore=given["ignore"], inventory=given["inventory"])
    if given["clocks"]:
        read, _ = answers(given["clocks"], "offset_s")
        # Who did not answer at all is a check of the phase reach.
        clocks = {host: read.get(host) for host in given["clocks"] if host in good}
        checks += judge_clocks(clocks, given["max_clock_offset"], given["inventory"])
    module.exit_json(changed=False, checks=[check.as_dict() for check in checks], groups=groups_of(nodes))


if __name__ == "__main__":
    main()
