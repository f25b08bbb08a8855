#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Read what a node has for rootless containers of the training user."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: container_runtime_state
short_description: Read what a node has for rootless containers of the training user
description:
  - Reads packages, ranges of ids, kernel settings and the place of images, and the user's own settings with the rights
    of that user.
options:
  user:
    description: The training user.
    type: str
    required: true
  packages:
    description: Packages of the operating system.
    type: list
    elements: str
    default: []
  package_manager:
    description: Ansible's fact C(pkg_mgr).
    type: str
    default: ""
  files:
    description: Files whose owner, mode and digest are read.
    type: list
    elements: str
    default: []
  user_files:
    description: Text by name of the files in C(~/.config/containers) of O(user); null for a file that must not exist.
    type: dict
    default: {}
  storage:
    description: Folder above the user's images; empty for the user's home.
    type: str
    default: ""
  free_gib:
    description: GiB that must be free before the first image.
    type: int
    default: 0
extends_documentation_fragment: [inventory_name, read_only]
"""

EXAMPLES = r"""
- name: Read what the node has for containers
  container_runtime_state:
    host: "{{ inventory_hostname }}"
    user: train
    packages: [podman, uidmap]
    package_manager: apt
  register: containers
"""

RETURN = r"""
state:
  description: >-
    C(host); C(name) of the user and C(user), its C(uid), C(gid) and C(home), or null; C(package_manager);
    C(missing_packages), and by name the C(candidates) of apt; C(podman), the output of C(podman --version); C(files),
    attributes by path; C(linger); C(sysctls); C(ranges), by path the new text of files in which the user lacks a
    range, or C(range_fault); C(user_files), the names of those that differ; C(foreign), paths of those that the role
    must not replace; C(storage) (C(path), C(exists), C(file_system), C(free_gib), C(needed_gib), C(owner), C(unsafe)).
  returned: success
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard_node.machine.as_user import JobError
from ansible.module_utils.trainyard_node.machine.tree import Tree
from ansible.module_utils.trainyard_node.software.container_setup import read_state


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "host": {"type": "str", "required": True},
            "user": {"type": "str", "required": True},
            "packages": {"type": "list", "elements": "str", "default": []},
            "package_manager": {"type": "str", "default": ""},
            "files": {"type": "list", "elements": "str", "default": []},
            "user_files": {"type": "dict", "default": {}},
            "storage": {"type": "str", "default": ""},
            "free_gib": {"type": "int", "default": 0},
        },
        supports_check_mode=True,
    )
    host, user = module.params["host"], module.params["user"]
    try:
        state = read_state(Tree(), module.params)
    except (JobError, OSError) as error:
        module.fail_json(msg=f"{host}: the settings of {user} cannot be read: {error}. Check the user's home.")
    module.exit_json(changed=False, state=state)


if __name__ == "__main__":
    main()
