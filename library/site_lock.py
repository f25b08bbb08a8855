#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin site_lock."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: site_lock
short_description: Resolve the software of all hosts, and write the lock
description:
  - Resolves what M(software_request) has recorded, for each operating system among the hosts. apt resolves packages on
    an empty system of that release and architecture, uv resolves wheels. No host is visited.
  - The wheels of C(.venv) are locked as well.
  - Parts of an existing lock whose request is the same stay as they are. In check mode everything is resolved anew, and
    nothing is written.
options:
  hosts:
    description: Inventory names.
    type: list
    elements: str
    required: true
  path:
    description: File of the lock.
    type: path
    required: true
  upgrade:
    description: Resolve everything anew.
    type: bool
    default: false
  mirrors:
    description: >-
      Addresses of the distribution's mirrors, C(main) and C(security), instead of those that the controller's apt has.
    type: dict
    default: {}
  controllers:
    description: >-
      Systems of controllers, such as C(debian-12-x86_64), for its python3, or C(debian-12-x86_64-python3.13). Empty for
      those that the lock has, else for this machine and its Python.
    type: list
    elements: str
    default: []
  also:
    description: Targets of make that controllers can run, too.
    type: list
    elements: str
    choices: [kubernetes, hardware, lab, test]
    default: []
attributes:
  check_mode:
    support: full
"""

EXAMPLES = r"""
- name: Write the lock
  site_lock:
    hosts: [n1, n2]
    path: inventories/mine/trainyard.lock
"""

RETURN = r"""
changes:
  description: A line for each version that differs from the lock before.
  returned: success
  type: list
  elements: str
lock:
  description: File of the lock.
  returned: success
  type: str
"""
