#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin verify_report."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: verify_report
short_description: Write the report of a verification as JSON, JUnit XML and a page
description:
  - Builds the report of P(verify.yml) from what its phases found, and writes C(report.json), C(report.xml) and
    C(report.html) into the run's folder.
  - The page is one file that needs no network; its figures are drawn by plotly.js, which it holds.
  - Words that are secrets by their form or name, environments, control characters and not-a-number values are left out.
  - Runs once, on the controller, whose Python has plotly.
options:
  run_dir:
    description: Folder of this verification on the controller; it is made, and its name is the name of the report.
    type: path
    required: true
  cluster:
    description: Name of the cluster.
    type: str
    required: true
  inventory:
    description: The inventory as the user named it.
    type: str
    default: ""
  hosts:
    description: All hosts of the cluster, in inventory order.
    type: list
    elements: str
    required: true
  phases:
    description:
      - What each phase found, in the order in which they ran, with C(name), C(state), C(reason) (of one that was
        skipped), C(started) (seconds since the epoch), C(elapsed_s) and C(checks), a list of checks.
      - A state that is missing is that of the worst check.
    type: list
    elements: dict
    required: true
  not_asked:
    description: Phases that nobody wanted; the result names them.
    type: list
    elements: str
    default: []
  nodes:
    description: What is known of nodes, with C(host), C(address) and C(facts) (a dictionary of versions and settings).
    type: list
    elements: dict
    default: []
  benchmarks:
    description: Records of benchmarks, as M(collective_benchmark) returns them.
    type: list
    elements: dict
    default: []
  stragglers:
    description: The result on the measurements of pairs; empty where none were made.
    type: dict
    default: {}
  started:
    description: When the verification began, in seconds since the epoch.
    type: float
    required: true
  finished:
    description: When it ended; now, when it is not given.
    type: float
attributes:
  check_mode:
    description: Can run in check mode; it writes no file then.
    support: full
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
        elapsed_s: 2.5
        checks:
          - phase: drift
            name: kernel
            state: fail
            hosts: [n3]
            found: 6.1.0-28-amd64
            expected: 6.1.0-30-amd64
            reason: n3 runs another kernel than 2 of 3 nodes
            action: install linux-image-6.1.0-30-amd64 on n3 and reboot it
"""

RETURN = r"""
state:
  description: The result, V(pass), V(fail) or V(unknown) (nothing failed, but something could not be measured).
  returned: always
  type: str
exit_code:
  description: Exit status of a verification with this result, 0, 2 or 3.
  returned: always
  type: int
text:
  description: The result, what to do first, the phases, and the checks that did not pass, for reading.
  returned: always
  type: str
first:
  description: What to do first (C(hosts), C(phase), C(check), C(reason), C(action)); null where everything passed.
  returned: always
  type: dict
files:
  description: The files of the report.
  returned: always
  type: list
  elements: str
"""
