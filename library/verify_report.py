#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin verify_report."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: verify_report
short_description: Write the report of a verification
description:
  - Writes C(report.json), C(report.xml) (JUnit) and C(report.html) into the run's folder, from the results of the
    phases. Secrets, environments and control characters are left out. The page is one file that needs no network.
options:
  run_dir: {description: Folder of this verification; its name is that of the report., type: path, required: true}
  cluster: {description: Name of the cluster., type: str, required: true}
  inventory: {description: The inventory as the user named it., type: str, default: ""}
  become: {description: Whether Ansible becomes root in the commands of checks., type: bool, default: true}
  hosts: {description: "All hosts of the cluster, in inventory order.", type: list, elements: str, required: true}
  phases:
    description: >-
      The phases that ran, with C(name), C(state), C(reason), C(started), C(elapsed_s) and C(checks). Without C(state)
      the worst check decides.
    type: list
    elements: dict
    required: true
  not_asked: {description: Phases that were not requested., type: list, elements: str, default: []}
  nodes: {description: "Nodes with C(host), C(address) and C(facts).", type: list, elements: dict, default: []}
  benchmarks: {description: Records of M(collective_benchmark)., type: list, elements: dict, default: []}
  stragglers: {description: RV(stragglers) of M(verify); empty without pairs., type: dict, default: {}}
  group_by: {description: Name of the host variable by which nodes are grouped., type: str, default: ""}
  groups: {description: "Value of O(group_by) by host; a host without one is in no group.", type: dict, default: {}}
  topology: {description: "File with the switches of the nodes, in the form of topology.conf.", type: path, default: ""}
  events:
    description: Receivers of an event where the result differs from the one before, as C(job_events) has them.
    type: list
    elements: dict
    default: []
  events_secret: {description: Secret that signs events to webhooks., type: str, default: ""}
  repetition:
    description: >-
      Number of the repetition whose phases O(phases) are (C(verify_soak)), 0 without any. C(soak.json) in the folder
      keeps what counts of them, and the report joins all repetitions so far.
    type: int
    default: 0
  started: {description: "Begin of the verification, in seconds since the epoch.", type: float, required: true}
  finished: {description: "Its end, by default now.", type: float}
attributes:
  check_mode:
    support: full
    description: It writes no file in check mode.
"""

EXAMPLES = r"""
- name: Write the report
  verify_report:
    run_dir: runs/verify-20261121-200000
    cluster: lab
    hosts: [n1, n2, n3]
    started: 1795291200
    phases:
      - name: drift
        checks: [{phase: drift, name: kernel, state: pass}]
"""

RETURN = r"""
state: {description: "V(pass), V(fail) or V(unknown).", returned: always, type: str}
exit_code: {description: "Exit status of this result, 0, 2 or 3.", returned: always, type: int}
text: {description: The result for the terminal., returned: always, type: str}
first:
  description: C(hosts), C(phase), C(check), C(reason) and C(action) of the first step, or null.
  returned: always
  type: dict
files: {description: The files of the report., returned: always, type: list, elements: str}
"""
