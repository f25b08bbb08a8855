#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin node_record."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: node_record
short_description: Record on all hosts what they were before trainyard
description:
  - Opens the record of each host before site.yml changes it, and closes it afterwards. All that is new then is
    trainyard's; M(node_removal) takes it off again.
  - The record is C(removal/record.json) in C(trainyard_records), where only root writes. It is not counted as a change.
options:
  hosts:
    description: Inventory names.
    type: list
    elements: str
    required: true
  state:
    description: V(open) before the first change, V(closed) after the last one.
    type: str
    choices: [open, closed]
    required: true
attributes:
  check_mode:
    support: full
    description: Nothing is recorded.
seealso:
  - module: node_removal
"""

EXAMPLES = r"""
- name: Record what the hosts are
  node_record:
    hosts: "{{ ansible_play_hosts }}"
    state: open
  run_once: true
"""

RETURN = r""" # """
