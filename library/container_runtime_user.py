#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Write the training user's settings of Podman, and make the folder of its images."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: container_runtime_user
short_description: Write a user's settings of Podman, and make the folder of its images
description:
  - Writes files in C(~/.config/containers) with the rights of that user, so that links there lead root nowhere.
  - Makes O(storage) below folders that only root can change, and gives it to the user.
options:
  user:
    description: The training user.
    type: str
    required: true
  files:
    description: Text by name of the files to write; null removes a file.
    type: dict
    default: {}
  storage:
    description: Folder of the user's images to make if it does not exist; empty for none.
    type: str
    default: ""
attributes:
  check_mode:
    support: full
    description: Returns the change and makes none.
  diff_mode:
    support: full
    description: Shows each changed file before and after.
"""

EXAMPLES = r"""
- name: Keep images on the data disk
  container_runtime_user:
    user: train
    storage: /data/containers/train
    files:
      storage.conf: "{{ lookup('ansible.builtin.template', 'storage.conf.j2') }}"
"""

RETURN = r"""
paths:
  description: The changed paths.
  returned: success
  type: list
  elements: str
"""

import pwd
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard_node.machine import as_user
from ansible.module_utils.trainyard_node.machine.owned_file import difference
from ansible.module_utils.trainyard_node.machine.private import PrivateError
from ansible.module_utils.trainyard_node.software.container_setup import make_storage, read_user_files, write_user_files


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "user": {"type": "str", "required": True},
            "files": {"type": "dict", "default": {}},
            "storage": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    user, files, storage = (module.params[name] for name in ("user", "files", "storage"))
    try:
        owner, home = as_user.named(user), pwd.getpwnam(user).pw_dir
        before = as_user.run(owner, read_user_files, home, list(files))
        changed = {name: text for name, text in files.items() if text != before[name]}
        missing = bool(storage) and not Path(storage).exists()
        if changed and not module.check_mode:
            as_user.run(owner, write_user_files, home, changed)
        if missing and not module.check_mode:
            make_storage(user, storage)
    except (as_user.JobError, OSError, PrivateError) as error:
        module.fail_json(msg=f"the settings of {user} cannot be written: {error}")
    places = {name: Path(home, ".config/containers", name) for name in changed}
    diff = [difference(path, before[name], files[name] or "") for name, path in places.items()]
    diff += [difference(Path(storage), "", "(folder)\n")] if missing else []
    paths = [*map(str, places.values()), *([storage] if missing else [])]
    module.exit_json(changed=bool(paths), paths=paths, diff=diff)


if __name__ == "__main__":
    main()
