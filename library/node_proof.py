#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Ansible module node_proof: what a node lacks, or the proof that names and limits hold on it. Read-only."""
from __future__ import annotations

DOCUMENTATION = r"""
module: node_proof
short_description: See what a node lacks, or prove names and limits on it
description:
  - Says which of O(packages), of the lines in /etc/hosts (O(block)) and of the time services (O(time_units)) are not
    there; what is not given is not looked at. Only where nothing is missing the proof follows.
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
  block:
    description: Name of the block in /etc/hosts that has O(entries), as for M(hosts_file).
    type: str
    default: ""
  left_out:
    description: As for M(hosts_file).
    type: list
    elements: str
    default: []
  packages:
    description: Packages of the operating system.
    type: list
    elements: str
    default: []
  package_manager:
    description: Ansible's fact C(pkg_mgr).
    type: str
    default: ""
  time_units:
    description: Units of systemd of which the first that the node has shall keep the clock.
    type: list
    elements: str
    default: []
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
missing:
  description: What is to be done before anything can be proved, in words.
  returned: success
  type: list
  elements: str
packages:
  description: Those of O(packages) that are not installed.
  returned: success
  type: list
  elements: str
findings:
  description: What is not as it shall be, with C(host), C(check), C(found), C(expected) and C(action).
  returned: success
  type: list
  elements: dict
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard.hosts import Entry, rewrite_hosts
from ansible.module_utils.trainyard_node.clock import clock_fault
from ansible.module_utils.trainyard_node.packages import missing_packages
from ansible.module_utils.trainyard_node.proof import limit_findings, name_findings, read_hosts
from ansible.module_utils.trainyard_node.tree import Tree


def hosts_differ(given: dict[str, Any]) -> bool:
    """Tell whether /etc/hosts is not what the module hosts_file would make of it; that one says why."""
    entries = [Entry(entry["address"], tuple(entry["names"])) for entry in given["entries"]]
    try:
        before = read_hosts("/etc/hosts")
        after, conflicts = rewrite_hosts(before, entries, given["block"], given["left_out"])
    except (OSError, ValueError):
        return True
    return after != before or bool(conflicts)


def main() -> None:
    """Look, measure and return the findings."""
    module = AnsibleModule(
        argument_spec={
            "host": {"type": "str", "required": True},
            "entries": {"type": "list", "elements": "dict", "required": True},
            "user": {"type": "str", "required": True},
            "memlock": {"type": "str", "required": True},
            "nofile": {"type": "str", "required": True},
            "systemd": {"type": "bool", "required": True},
            "block": {"type": "str", "default": ""},
            "left_out": {"type": "list", "elements": "str", "default": []},
            "packages": {"type": "list", "elements": "str", "default": []},
            "package_manager": {"type": "str", "default": ""},
            "time_units": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    given, tree = module.params, Tree("/")
    packages = missing_packages(tree, given["package_manager"], given["packages"])
    missing = [f"package {name}" for name in packages]
    if given["block"] and hosts_differ(given):
        missing.append("lines in /etc/hosts")
    fault = clock_fault(tree, given["time_units"]) if given["time_units"] else ""
    if fault:
        missing.append(f"time service: {fault}")
    findings = []
    if not missing:
        wanted = {"memlock": given["memlock"], "nofile": given["nofile"]}
        findings = name_findings(given["host"], given["entries"])
        findings += limit_findings(tree, given["host"], given["user"], wanted, given["systemd"])
    module.exit_json(
        changed=False, missing=missing, packages=packages, findings=[finding.as_dict() for finding in findings]
    )


if __name__ == "__main__":
    main()
