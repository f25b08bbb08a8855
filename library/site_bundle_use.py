#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin site_bundle_use."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: site_bundle_use
short_description: Check a bundle for all hosts, and pack what they lack
description:
  - Verifies the signature and the sums of a bundle, and compares it with the systems of the hosts, with what
    M(software_request) has recorded, and with the room on their disks. All findings come at once.
  - Then it writes an archive for each system of which a host lacks the files; none in check mode.
options:
  bundle:
    description: Folder of the bundle on the controller.
    type: str
    required: true
  hosts:
    description: Inventory names.
    type: list
    elements: str
    required: true
  states:
    description: >-
      By host a list, first the stamp of the bundle that it has, then when that was signed, where it is known, and last
      the free KiB for another one.
    type: dict
    required: true
  folder:
    description: Folder of the bundle on the nodes.
    type: str
    required: true
  archives:
    description: Folder on the controller for the archives, C(SYSTEM.tar).
    type: str
    required: true
  key:
    description: Expected fingerprint of the key; empty for any, of a bundle that only its user and root can change.
    type: str
    default: ""
  older:
    description: Take a bundle, too, that is older than the one that a host has.
    type: bool
    default: false
attributes:
  check_mode:
    support: full
"""

EXAMPLES = r"""
- name: Check the bundle
  site_bundle_use:
    bundle: /media/usb/mine-4f2a.bundle
    hosts: [n1]
    states: {n1: [none, 9000000]}
    folder: /var/lib/trainyard-root/bundle
    archives: /tmp/archives
"""

RETURN = r"""
stamp:
  description: What tells this bundle from others.
  returned: success
  type: str
made:
  description: When it was signed, in seconds since 1970.
  returned: success
  type: int
lacking:
  description: Hosts that have another bundle or none.
  returned: success
  type: list
  elements: str
nodes:
  description: By host C(folder), C(system), C(environments), the pins of each environment, and C(files), paths on the
    controller by sum or commit.
  returned: success
  type: dict
"""
