#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin can_install."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: can_install
short_description: Ask all hosts what prevents the installation of their software
description:
  - Checks what M(software_request) has recorded, before anything is touched. The controller checks the input of roles
    and its own files; one visit to all hosts checks interpreters, disk space, environments and addresses of sources.
  - A second visit sends the controller's pip to hosts that need packages of an index. It asks the index for versions
    that fit their Python (C(pip index versions)). Python 3.9 is too old for that pip, and is not checked.
  - Versions that apt must have (drivers, CUDA, NCCL) are looked up in lists apart from the system's. The role checks
    signatures when it configures apt.
  - A host where everything is complete asks no index and no address, and the role need not check it again unless
    the host has changed since.
options:
  hosts:
    description: Inventory names of the hosts to ask. On other hosts only the input is checked.
    type: list
    elements: str
    required: true
  folders:
    description: >-
      Folders on the hosts by the variables that name them. The same visit finds which of the hosts share each: on a
      file system of another host, one of them leaves a token for a moment, and the others read it.
    type: dict
  user:
    description: User who writes the token, if that user is there and may; otherwise the owner of the folder does.
    type: str
extends_documentation_fragment: read_only
"""

EXAMPLES = r"""
- name: Ask what prevents an installation
  can_install:
    hosts: "{{ ansible_play_hosts }}"
  register: checked
"""

RETURN = r"""
sharing:
  description: >-
    By folder, lists of hosts, each of which sees the same folder. A host of which that is not known is in no list.
  returned: always
  type: dict
summary:
  description: A line for each folder that hosts share.
  returned: always
  type: list
  elements: str
seen:
  description: >-
    The complete parts by host, each with C(of), the request, and C(result), as its role's module would return it
    (M(python_environment)); empty for data sets.
  returned: always
  type: dict
findings:
  description: All findings, each with host, check, found, expected and action.
  returned: always
  type: list
  elements: dict
"""
