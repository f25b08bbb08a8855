#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Ansible module image_state: what an image of a framework can be built with on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: image_state
short_description: Read what an image of a framework can be built with on a host
description:
  - Finds Podman, free space, and the image to build on, which is pulled where the host does not have it.
  - Runs the base's Python without network, and reads its version and what the packages need and the base has not.
options:
  host:
    description: The host's name in the inventory, for findings.
    type: str
    required: true
  base:
    description: C(docker://NAME@sha256:...), C(oci-archive:/path), C(docker-archive:/path), or an image of the host.
    type: str
    required: true
  interpreter:
    description: The Python in the base, a path or a name on PATH.
    type: str
    default: python3
  libraries:
    description: Libraries, programs and C(Python.h) that the packages need from the base.
    type: list
    elements: str
    default: []
  file:
    description: The archive that will be written, for the check of free space.
    type: str
    default: ""
  min_free_mb:
    description: MB (10^6 bytes) that must be free.
    type: int
    default: 0
attributes:
  check_mode:
    support: full
    description: Pulls nothing; C(base) is empty then.
"""

EXAMPLES = r"""
- name: Read Podman and the base
  image_state:
    host: "{{ inventory_hostname }}"
    base: oci-archive:/srv/images/python-3.11.tar
  register: state
"""

RETURN = r"""
base:
  description: >-
    C(reference), C(id), C(digest), C(user), C(created) (seconds since 1970), C(python), and C(lacking) (libraries).
    Empty with findings, or where check mode would pull it.
  returned: success
  type: dict
pulled:
  description: Whether the base was, or would be, pulled.
  returned: success
  type: bool
findings:
  description: All that prevents the build.
  returned: success
  type: list
  elements: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard_node.software.image_state import State


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "host": {"type": "str", "required": True},
            "base": {"type": "str", "required": True},
            "interpreter": {"type": "str", "default": "python3"},
            "libraries": {"type": "list", "elements": "str", "default": []},
            "file": {"type": "str", "default": ""},
            "min_free_mb": {"type": "int", "default": 0},
        },
        supports_check_mode=True,
    )
    given = module.params
    state = State(given["base"], not module.check_mode)
    state.read(given["interpreter"], given["libraries"], given["file"], given["min_free_mb"])
    findings = [finding.on(given["host"]).as_dict() for finding in state.findings]
    module.exit_json(changed=state.pulled and not findings, pulled=state.pulled, base=state.base, findings=findings)


if __name__ == "__main__":
    main()
