#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin wanted."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: wanted
short_description: Note what hosts are to get of a part of the software
description:
  - Reads a variable as a task of the same role would read it on each host, and adds it to the fact
    C(trainyard_wanted) of the host whose task this is. No host is visited. M(can_install) asks about all parts at once.
options:
  hosts:
    description: Which hosts, inventory names.
    type: list
    elements: str
    required: true
  part:
    description: Name of the part, as findings name it.
    type: str
    required: true
  variable:
    description: >-
      Name of the variable, with C(faults) (what is wrong with the input, in words), C(environment), C(prefix),
      C(manage_system), C(apt), C(data) and C(sources) as M(can_install) documents them.
    type: str
    required: true
extends_documentation_fragment: read_only
"""

EXAMPLES = r"""
- name: Note what is wanted
  wanted:
    hosts: "{{ ansible_play_hosts }}"
    part: pytorch
    variable: __python_runtime_wanted
"""

RETURN = r"""
ansible_facts:
  description: C(trainyard_wanted), what is wanted by host and part.
  returned: success
  type: dict
"""
