#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Ansible module private_folder: where root works on what it has fetched, and a last look at that before it is used."""

from __future__ import annotations

DOCUMENTATION = r"""
module: private_folder
short_description: Make a folder that nobody else can enter, or look again at a file in it
description:
  - Removes what is in place and makes the folder anew, for its owner alone, below folders that only root can write.
    What is downloaded, built or unpacked in it cannot be exchanged by another user before root runs or installs it.
  - With O(file), changes nothing and fails unless that file lies in such a place, belongs to the user that asks, is no
    link, cannot be written by others and has the digest O(sha256). To be asked right before the file is used.
  - A user other than root gets the folder as well; who else may write the folders above is then the site's own affair.
options:
  path:
    description: The folder to be made, with all parents that are missing.
    type: path
  folders:
    description: Folders in it to be made as well, for everybody to read, as what is built there is moved into place.
    type: list
    elements: str
    default: []
  file:
    description: The file to look at.
    type: path
  sha256:
    description: Its digest.
    type: str
attributes:
  check_mode:
    support: full
    description: Makes no folder.
"""

EXAMPLES = r"""
- name: Make a folder for the installer
  private_folder:
    path: /var/lib/trainyard-root/nvidia-driver

- name: Look again before it runs
  private_folder:
    file: /var/lib/trainyard-root/nvidia-driver/installer.run
    sha256: "{{ nvidia_driver_sha256 }}"
"""

RETURN = r""" # """

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard_node.machine.private import PrivateError, expect_file, make_private


def main() -> None:
    """Make the folder, or look at the file."""
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
    given = module.params
    try:
        if given["file"]:
            expect_file(Path(given["file"]), given["sha256"])
        elif not module.check_mode:
            make_private(Path(given["path"]), given["folders"])
    except (PrivateError, OSError) as error:
        module.fail_json(msg=f"{error}.")
    module.exit_json(changed=bool(given["path"]))


if __name__ == "__main__":
    main()
