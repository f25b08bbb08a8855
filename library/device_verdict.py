#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Judge the devices of all nodes, at one time or between two."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: device_verdict
short_description: Judge the devices of all nodes, at one time or between two
description:
  - Takes what M(proof_facts) returned on every node and judges GPUs, NPUs and RDMA ports. With O(before) it judges
    which error counters grew since then, and nothing else.
  - What a device does not say is unknown, never well.
  - Runs on the controller, once for all nodes, reads nothing and changes nothing.
version_added: "0.2.0"
options:
  results:
    description: By inventory name, what the task with M(proof_facts) brought, also where it failed.
    type: dict
    required: true
  before:
    description: The same from an earlier time.
    type: dict
  groups:
    description: Groups of hardware with their nodes, as M(drift_verdict) returns them; ports are compared within one.
    type: dict
    default: {}
  allowed_growth:
    description: By counter, the growth that is no fault. Counters that are not named may not grow.
    type: dict
    default: {}
  xids:
    description: Xid numbers that are a fault of the device; empty for those of the hardware in NVIDIA's catalogue.
    type: list
    elements: int
    default: []
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
- name: Judge the devices
  device_verdict:
    results: "{{ facts_by_host }}"
  delegate_to: localhost
  run_once: true

- name: Judge what grew while the benchmarks ran
  device_verdict:
    before: "{{ facts_by_host }}"
    results: "{{ facts_afterwards }}"
    allowed_growth: {symbol_error: 10}
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
checks:
  description: Records of module_utils/trainyard/checks.py.
  returned: success
  type: list
  elements: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard.devices import HARDWARE_XIDS, judge, judge_counters
from ansible.module_utils.trainyard.reach import answers


def main() -> None:
    """Judge all nodes together."""
    module = AnsibleModule(
        argument_spec={
            "results": {"type": "dict", "required": True},
            "before": {"type": "dict"},
            "groups": {"type": "dict", "default": {}},
            "allowed_growth": {"type": "dict", "default": {}},
            "xids": {"type": "list", "elements": "int", "default": []},
            "inventory": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    given = module.params
    now, before = (
        {host: result["devices"] for host, result in answers(results or {}, "devices")[0].items()}
        for results in (given["results"], given["before"])
    )
    xids = given["xids"] or HARDWARE_XIDS
    if given["before"] is None:
        groups = {host: name for name, hosts in given["groups"].items() for host in hosts}
        checks = judge(now, groups=groups, inventory=given["inventory"], xids=xids)
    else:
        allowed = {name: int(growth) for name, growth in given["allowed_growth"].items()}
        checks = judge_counters(before, now, allowed=allowed, inventory=given["inventory"], xids=xids)
    module.exit_json(changed=False, checks=[check.as_dict() for check in checks])


if __name__ == "__main__":
    main()
