#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin system_facts."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: system_facts
short_description: Set the facts of a host by the name of its system
description:
  - Sets the facts by which roles choose packages, as M(ansible.builtin.setup) would find them. The host is not visited.
options:
  system:
    description: Name of the system, such as V(debian-12-x86_64), or V(glibc-2.34-aarch64) for any other Linux.
    type: str
    required: true
extends_documentation_fragment: read_only
"""

EXAMPLES = r"""
- name: Take the system from the inventory
  system_facts:
    system: debian-12-x86_64
"""

RETURN = r"""
ansible_facts:
  description: >-
    C(architecture), C(distribution), C(distribution_major_version), C(distribution_release), C(distribution_version),
    C(os_family) and C(pkg_mgr).
  returned: success
  type: dict
"""
