#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin software_request."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: software_request
short_description: Record what hosts are to get of a part of the software
description:
  - Reads a variable as a task of the same role would read it on each host, and keeps it on the controller until the
    playbook ends. No host is visited. M(can_install) checks all parts at once.
options:
  hosts:
    description: Inventory names.
    type: list
    elements: str
    required: true
  part:
    description: Name of the part in findings.
    type: str
    required: true
  variable:
    description: >-
      Name of the variable, a dictionary with C(findings) (on the input), C(environment), C(prefix), C(manage_system),
      C(apt), C(data) and C(sources). For a lock it may have C(packages) of the system, C(optional_packages), which the
      system may lack, C(repository) (packages of another repository), C(kept_sources) (as C(sources), which no
      host asks for now), and C(missing) (C(what) and C(why)).
    type: str
    required: true
extends_documentation_fragment: read_only
"""

EXAMPLES = r"""
- name: Record what is to be installed
  software_request:
    hosts: "{{ ansible_play_hosts }}"
    part: pytorch
    variable: __python_runtime_request
"""

RETURN = r"""
requests:
  description: The requests by host.
  returned: success
  type: dict
"""
