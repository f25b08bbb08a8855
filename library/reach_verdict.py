#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Judge who reaches whom, and which hosts jobs can use."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: reach_verdict
short_description: Judge who reaches whom, and which hosts jobs can use
description:
  - Takes what the nodes' tries brought, names the nodes that failures have in common, and returns those among which
    every way led to its end.
  - Runs on the controller, once for all nodes, reads nothing and changes nothing.
version_added: "0.2.0"
options:
  hosts:
    description: All hosts in inventory order.
    type: list
    elements: str
    required: true
  results:
    description: By inventory name, what the task with M(proof_facts) brought, also where it failed.
    type: dict
    required: true
  listeners:
    description: By inventory name, what M(proof_listener) brought with V(started).
    type: dict
    default: {}
  ended:
    description: By inventory name, what M(proof_listener) brought with V(absent).
    type: dict
    default: {}
  rows:
    description: By inventory name, what M(proof_reach) brought.
    type: dict
    default: {}
  logins:
    description: By inventory name, what M(ssh_reach) brought; empty where ssh is not tested.
    type: dict
    default: {}
  user:
    description: The training user.
    type: str
    default: ""
  network:
    description: The job network, for the messages.
    type: str
    default: ""
  inventory:
    description: The options that name the inventory, for the commands in the result.
    type: str
    default: ""
extends_documentation_fragment: read_only
author:
  - trainyard
seealso:
  - module: proof_reach
  - module: ssh_reach
"""

EXAMPLES = r"""
- name: Judge who reaches whom
  reach_verdict:
    hosts: "{{ ansible_play_hosts_all }}"
    results: "{{ facts_by_host }}"
    rows: "{{ rows_by_host }}"
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
checks:
  description: Records of module_utils/trainyard/checks.py.
  returned: success
  type: list
  elements: dict
usable:
  description: Hosts that answer, have an address on the job network, and reach each other over it.
  returned: success
  type: list
  elements: str
nodes:
  description: For the report, each host with C(address) and flat C(facts).
  returned: success
  type: list
  elements: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard.checks import Check
from ansible.module_utils.trainyard.reach import (
    answers,
    judge_addresses,
    judge_answers,
    judge_names,
    judge_network,
    judge_ssh,
    usable,
)


def main() -> None:
    """Judge all pairs together."""
    module = AnsibleModule(
        argument_spec={
            "hosts": {"type": "list", "elements": "str", "required": True},
            "results": {"type": "dict", "required": True},
            "listeners": {"type": "dict", "default": {}},
            "ended": {"type": "dict", "default": {}},
            "rows": {"type": "dict", "default": {}},
            "logins": {"type": "dict", "default": {}},
            "user": {"type": "str", "default": ""},
            "network": {"type": "str", "default": ""},
            "inventory": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    given = module.params
    inventory = given["inventory"]
    good, _ = answers(given["results"], "facts")
    silent = {host: given["results"].get(host, {}) for host in given["hosts"] if host not in good}
    checks = judge_answers(silent, given["hosts"], inventory)
    checks += judge_addresses({host: good[host]["network"] for host in good}, given["network"])
    able = [host for host in given["hosts"] if host in good and good[host]["network"]["address"]]
    if given["rows"]:
        ended, _ = answers(given["ended"], "lived")
        lived = {host: bool(result.get("lived")) for host, result in ended.items()}
        rows = {host: given["rows"].get(host, {}) for host in able}
        network, failures = judge_network(
            {host: given["listeners"].get(host, {}) for host in able}, lived, rows, inventory
        )
        checks += network + judge_names(rows, inventory)
        heard, tried = answers(given["listeners"], "endpoint")[0], answers(rows, "tried")[0]
        able = usable([host for host in able if host in heard and host in tried], failures)
    else:
        checks.append(Check("reach", "job network", "not_asked", reason="nobody tried it"))
    if given["logins"]:
        checks += judge_ssh({host: given["logins"].get(host, {}) for host in good}, given["user"], inventory)[0]
    else:
        checks.append(Check("reach", "ssh", "not_asked", reason="proof_ssh is false"))
    nodes = [
        {
            "host": host,
            "address": good[host]["network"]["address"] if host in good else "",
            "facts": good[host]["facts"] if host in good else {},
        }
        for host in given["hosts"]
    ]
    module.exit_json(changed=False, checks=[check.as_dict() for check in checks], usable=able, nodes=nodes)


if __name__ == "__main__":
    main()
