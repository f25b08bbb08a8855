#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Ansible module own_ssh: have the present user log in among hosts by a key of its own."""

from __future__ import annotations

DOCUMENTATION = r"""
module: own_ssh
short_description: Have the present user log in among hosts by a key of its own
description:
  - Without O(files), returns the public keys of the user and of the host; C(~/.ssh/id_ed25519) is made if there is
    none, and never replaced.
  - With O(files), writes missing lines into files of C(~/.ssh). Lines of others stay.
options:
  mark:
    description: The last word of lines of ours, and the comment of a new key.
    type: str
    required: true
  files:
    description: Lines by the name of a file.
    type: dict
attributes:
  check_mode:
    support: full
    description: Makes no key, and writes nothing.
"""

EXAMPLES = r"""
- name: Read the keys
  own_ssh:
    mark: trainyard:trainyard
  register: own
"""

RETURN = r"""
user_key:
  description: The user's public key without comment, empty if there is none yet.
  returned: without O(files)
  type: str
host_keys:
  description: The host's public keys without comments.
  returned: without O(files)
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard_node.cluster.own_ssh import read, trust


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={"mark": {"type": "str", "required": True}, "files": {"type": "dict"}}, supports_check_mode=True
    )
    params = module.params
    try:
        if params["files"] is None:
            module.exit_json(**read(mark=params["mark"], make=not module.check_mode))
        module.exit_json(**trust(params["files"], check=module.check_mode))
    except (OSError, ValueError) as error:
        module.fail_json(msg=f"The ssh key of the user: {error}")


if __name__ == "__main__":
    main()
