#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin can_install."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: can_install
short_description: Ask all hosts what would keep their software from being installed
description:
  - Judges what M(wanted) has noted, before anything is touched. The input of roles and files on the controller are
    looked at here; interpreters, space, environments and the addresses of sources on the hosts, in one visit to all.
  - Hosts that would need packages of an index are asked once more and are sent the controller's pip, which asks the
    index for versions that fit their Python (C(pip index versions)). What cannot be told so is no finding, as with
    Python 3.9, too old for that pip.
  - Where everything is there already, no index and no address is asked.
options:
  hosts:
    description: Whom to ask, inventory names. Of others only the input is judged.
    type: list
    elements: str
    required: true
extends_documentation_fragment: read_only
"""

EXAMPLES = r"""
- name: Ask what would keep it from being installed
  can_install:
    hosts: "{{ ansible_play_hosts }}"
  register: asked
"""

RETURN = r"""
findings:
  description: All faults, each with host, check, found, expected and action.
  returned: always
  type: list
  elements: dict
"""
