#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Ansible module private_folder: a folder for root only, and a check of a file in it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: private_folder
short_description: Create a folder that no other user can enter, or check a file in it
description:
  - Removes the path and creates the folder for its owner alone, below folders that only root can write. Other users
    cannot replace files in it before root runs or installs them.
  - With O(file), changes nothing and fails unless that file is in such a place, belongs to the calling user, is not a
    link, is not writable for others and has the digest O(sha256). Call it right before the file is used.
  - A user other than root can use it, too; the site decides who may write the parent folders then.
options:
  path:
    description: The folder to create, with missing parents.
    type: path
  folders:
    description: Folders in it to create, readable for everybody, as their content is moved into place.
    type: list
    elements: str
    default: []
  file:
    description: The file to check.
    type: path
  sha256:
    description: Its digest.
    type: str
attributes:
  check_mode:
    support: full
    description: Creates no folder.
"""

EXAMPLES = r"""
- name: Create a folder for the installer
  private_folder:
    path: /var/lib/trainyard-root/nvidia-driver

- name: Check it before it runs
  private_folder:
    file: /var/lib/trainyard-root/nvidia-driver/installer.run
    sha256: "{{ nvidia_driver_sha256 }}"
"""

RETURN = r""" # """

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard_node.machine.private import PrivateError, expect_file, make_private


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path"},
            "folders": {"type": "list", "elements": "str", "default": []},
            "file": {"type": "path"},
            "sha256": {"type": "str"},
        },
        required_one_of=[("path", "file")],
        mutually_exclusive=[("path", "file")],
        required_together=[("file", "sha256")],
        supports_check_mode=True,
    )
    params = module.params
    try:
        if params["file"]:
            expect_file(Path(params["file"]), params["sha256"])
        elif not module.check_mode:
            make_private(Path(params["path"]), params["folders"])
    except (PrivateError, OSError) as error:
        module.fail_json(msg=f"{error}.")
    module.exit_json(changed=bool(params["path"]))


if __name__ == "__main__":
    main()
