#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin node_removal."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: node_removal
short_description: Take trainyard off all hosts
description:
  - Plans the removal on all hosts by the records of M(node_record). If a host does not answer, runs a job, or has a
    record that cannot be used, no host is changed.
  - Then removes what is trainyard's, and puts back what was there before. What stays is named with its reason.
options:
  hosts:
    description: Inventory names.
    type: list
    elements: str
    required: true
  data:
    description: Whether folders of jobs, data sets, checkpoints, and files in the home of the training user go as well.
    type: bool
    default: false
attributes:
  check_mode:
    support: full
    description: It only prints what would be removed.
seealso:
  - module: node_record
"""

EXAMPLES = r"""
- name: Take trainyard off the hosts
  node_removal:
    hosts: "{{ ansible_play_hosts_all }}"
"""

RETURN = r"""
text:
  description: A list of what was removed, and of what stays.
  returned: success
  type: str
"""
