#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Start a container like a job's as the training user."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: container_runtime_verify
short_description: Start a container like a job's as the training user
description:
  - Stores an image of the node's own shell, starts a container with the flags of jobs, and removes the image. No
    registry is needed. The container reports its uid, namespaces, limits and devices, and writes a file in a mounted
    folder.
options:
  user:
    description: The training user.
    type: str
    required: true
  devices:
    description: Paths of devices that the container must see.
    type: list
    elements: str
    default: []
  options:
    description: More options of C(podman run), such as C(--device nvidia.com/gpu=all).
    type: list
    elements: str
    default: []
  apptainer:
    description: Whether Apptainer must run such an image, too.
    type: bool
    default: false
extends_documentation_fragment: [inventory_name, read_only]
"""

EXAMPLES = r"""
- name: Start a container like a job's
  container_runtime_verify:
    host: "{{ inventory_hostname }}"
    user: train
  register: container
"""

RETURN = r"""
probe:
  description: >-
    C(host) and C(user); C(fault), why nothing was started; C(import) and C(run), each the exit status and the output;
    C(expected), what the container must see; C(written_by), the uid that owns the file which the container wrote, or
    null; C(apptainer), null or C(run) and C(written_by) of Apptainer; C(devices) that it must see; C(sysctls);
    C(unranged), the files in which the user has no range of ids.
  returned: success
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard_node.software.container_setup import probe


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "host": {"type": "str", "required": True},
            "user": {"type": "str", "required": True},
            "devices": {"type": "list", "elements": "str", "default": []},
            "options": {"type": "list", "elements": "str", "default": []},
            "apptainer": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    given = module.params
    found = probe(given["user"], given["host"], given["devices"], given["options"], given["apptainer"])
    module.exit_json(changed=False, probe=found)


if __name__ == "__main__":
    main()
