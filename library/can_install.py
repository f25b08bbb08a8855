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
  - What apt is to have at a version (drivers, CUDA, NCCL) is looked up in the repository or the distribution's
    components, with lists apart from the system's; signatures are judged when the role tells apt of them.
  - Where everything is there already, no index and no address is asked. Its role need not look at it again, unless
    something has been changed on the host meanwhile.
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
seen:
  description: >-
    By host and part what is whole there, with C(of), what was wanted, and C(result), what the module of its role would
    have said (M(python_environment)), empty for data sets.
  returned: always
  type: dict
findings:
  description: All faults, each with host, check, found, expected and action.
  returned: always
  type: list
  elements: dict
"""
