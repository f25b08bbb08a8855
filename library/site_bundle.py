#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin site_bundle."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: site_bundle
short_description: Put the files of a lock together in one folder
description:
  - Fetches all files that a lock of M(site_lock) names, checks their sums, and writes a signed repository of packages
    for each system, requirement files with hashes, a bill of materials, and the sums of all files with a signature.
  - The folder gets its name when it is whole. A call that was interrupted is gone on with. In check mode the files are
    listed.
  - Logins are those of C(~/.netrc), or of the file that C(NETRC) names. Where a server still refuses an archive, the
    bundle is incomplete, and the next call tries again. Refused packages and wheels are errors.
options:
  lock:
    description: File of the lock.
    type: path
    required: true
  name:
    description: Begin of the bundle's name; digits of the lock's sum follow.
    type: str
    required: true
  folder:
    description: Where the bundle is written.
    type: path
    required: true
  since:
    description: An older bundle, whose files are left out; empty for none.
    type: str
    default: ""
  key:
    description: Folder of the key that signs bundles; it is made at the first use.
    type: path
    required: true
  version:
    description: Version of trainyard, for the bill of materials.
    type: str
    required: true
attributes:
  check_mode:
    support: full
"""

EXAMPLES = r"""
- name: Make a bundle
  site_bundle:
    lock: inventories/mine/trainyard.lock
    name: mine
    folder: /media/usb
    key: ~/.config/trainyard/bundle-key
    version: 0.1.0
"""

RETURN = r"""
bundle:
  description: The folder of the bundle.
  returned: success
  type: str
missing:
  description: >-
    Software that the bundle lacks, C(what) and C(why). What somebody can bring has C(sha256) and C(where), its path
    in the bundle or on the controller.
  returned: success
  type: list
  elements: dict
"""
