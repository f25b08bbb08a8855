#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin pytorch_choice."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: pytorch_choice
short_description: Choose the build of PyTorch for all hosts together
description:
  - Visits all hosts. Where none has an accelerator or the usual build, a second visit asks pip there for the CPU build.
    The CPU build is chosen if all hosts can have it, or have it already.
options:
  hosts:
    description: Inventory names.
    type: list
    elements: str
    required: true
  arguments:
    description: >-
      Name of a variable with C(environment) (arguments of M(python_environment), with the pins of the CPU build) and
      C(manage_system), read for each host. It is empty on hosts that leave nothing to choose.
    type: str
    required: true
extends_documentation_fragment: read_only
"""

EXAMPLES = r"""
- name: Choose the build
  pytorch_choice:
    hosts: "{{ ansible_play_hosts }}"
    arguments: __pytorch_offer
  register: choice
"""

RETURN = r"""
chosen:
  description: >-
    The C(build), V(cpu) or empty for the usual one; C(interpreters) of the CPU build by host; and C(note), one line for
    people where the CPU build is missing.
  returned: success
  type: dict
"""
