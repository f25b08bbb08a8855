#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin site_lock_use."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: site_lock_use
short_description: Compare hosts with the lock by which they install
description:
  - Compares a lock with the systems of the hosts and with what M(software_request) has recorded. If it fits, each host
    simulates with the newest lists of its mirrors, apart from its own, which versions apt would install of what is
    missing. Nothing is changed.
options:
  lock:
    description: File of the lock on the controller.
    type: str
    required: true
  hosts:
    description: Inventory names.
    type: list
    elements: str
    required: true
extends_documentation_fragment: read_only
"""

EXAMPLES = r"""
- name: Compare the hosts with the lock
  site_lock_use:
    lock: inventories/mine/trainyard.lock
    hosts: "{{ ansible_play_hosts }}"
  register: locked
"""

RETURN = r"""
findings:
  description: All findings, each with host, check, found, expected and action.
  returned: success
  type: list
  elements: dict
nodes:
  description: By host C(environments), the pins of each environment, and C(preferences), the text for apt.
  returned: success
  type: dict
"""
