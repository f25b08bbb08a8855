#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Ansible module built_folder: give a build its final place, also on a disk that several hosts share."""

from __future__ import annotations

DOCUMENTATION = r"""
module: built_folder
short_description: Put a finished build in place, look for it, or remove it
description:
  - Moves O(new) to O(path) at once, in place of an older build. Nothing changes where the same is there already, by
    their files C(.trainyard.json); then another host that shares the disk has put it there.
  - Hosts that share the disk take turns.
options:
  path:
    description: The final folder.
    type: path
    required: true
  new:
    description: Folder of the finished build, which is gone afterwards. Empty for a look at what is there.
    type: path
  record:
    description: Expected content of C(.trainyard.json).
    type: dict
  host:
    description: Inventory name for the answer.
    type: str
    default: ""
  state:
    description: V(absent) to remove the folder, whatever is in it.
    type: str
    choices: [present, absent]
    default: present
attributes:
  check_mode:
    support: full
    description: Only looks.
"""

EXAMPLES = r"""
- name: Put the build in place
  built_folder:
    path: /opt/trainyard/nccl-tests
    new: /opt/trainyard/.nccl-tests-building/stage
"""

RETURN = r"""
built:
  description: The O(host), and whether the folder has the O(record) (C(there)).
  returned: success
  type: dict
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard_node.machine.install_lock import InstallLockError
from ansible.module_utils.trainyard_node.software import build_prefix


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "new": {"type": "path"},
            "record": {"type": "dict"},
            "host": {"type": "str", "default": ""},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        },
        supports_check_mode=True,
    )
    params = module.params
    prefix, changed = Path(params["path"]), False
    try:
        if module.check_mode:
            changed = params["state"] == "absent" and prefix.exists()
        elif params["state"] == "absent":
            changed = build_prefix.take_away(prefix)
        elif params["new"]:
            changed = build_prefix.put(Path(params["new"]), prefix)
    except (InstallLockError, OSError) as error:
        module.fail_json(msg=f"{error}.")
    there = build_prefix.read_record(prefix) == params["record"]
    module.exit_json(changed=changed, built={"host": params["host"], "there": there})


if __name__ == "__main__":
    main()
