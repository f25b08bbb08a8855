#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Documentation of the action plugin download."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: download
short_description: Download a file with its sum, and show how far that is
description:
  - Calls M(ansible.builtin.get_url) on the host. Lines of progress have size, speed and time left, as far as the server
    tells the size.
options:
  url:
    description: Address of the file.
    type: str
    required: true
  dest:
    description: Path of the file, in a folder that is there and that nobody else may write.
    type: path
    required: true
  checksum:
    description: Sum of the file, such as C(sha256:...).
    type: str
    required: true
  mode:
    description: Permissions of the file.
    type: str
    required: true
  timeout:
    description: Time limit of an answer of the server, in seconds.
    type: int
    default: 10
attributes:
  check_mode:
    support: full
    description: Downloads nothing that stays.
"""

EXAMPLES = r"""
- name: Download the installer
  download:
    url: "{{ nvidia_driver_url }}"
    dest: /var/lib/trainyard-root/nvidia-driver/installer.run
    checksum: "sha256:{{ nvidia_driver_sha256 }}"
    mode: "0700"
"""

RETURN = r"""
size:
  description: Size of the file in bytes.
  returned: success
  type: int
"""
