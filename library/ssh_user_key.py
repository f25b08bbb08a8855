#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Ansible module ssh_user_key: make the training user's key on a node, or repair it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: ssh_user_key
short_description: Make the training user's ssh key on a node
description:
  - Makes the user's key (ed25519, in a folder of the node, readable by the user alone) when it is missing, and repairs
    owner, mode and public half. The private key stays where it is.
  - What stands in the way of the mesh, question C(ssh_keys) of M(fan_out) has found before.
options:
  user:
    description: The training user, who has to be there.
    type: str
    required: true
  key:
    description: Path of the user's private key.
    type: path
    required: true
  comment:
    description: The key's comment.
    type: str
    required: true
attributes:
  check_mode:
    support: full
    description: Makes no key, and says what is wrong with the one that is there.
"""

EXAMPLES = r"""
- name: Make the user's key
  ssh_user_key:
    user: train
    key: /etc/trainyard/ssh/user_ed25519
    comment: "train@{{ inventory_hostname }}"
  register: made
"""

RETURN = r"""
user_key:
  description: Public key of the training user, empty when it is still to be made.
  returned: success
  type: str
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard_node.cluster.ssh_keys import key_problems, make_key, public_key
from ansible.module_utils.trainyard_node.machine.tree import Tree


def main() -> None:
    """Make the key when something is wrong with it."""
    module = AnsibleModule(
        argument_spec={
            "user": {"type": "str", "required": True},
            "key": {"type": "path", "required": True, "no_log": False},
            "comment": {"type": "str", "required": True},
        },
        supports_check_mode=True,
    )
    given = module.params
    key = Path(given["key"])
    try:
        problems = key_problems(key, given["user"])
        if problems and not module.check_mode:
            make_key(Tree("/"), key, given["user"], given["comment"])
        module.exit_json(
            changed=bool(problems),
            user_key=public_key(Path(f"{key}.pub")),
            diff={"before": "".join(f"{key}: {problem}\n" for problem in problems), "after": ""},
        )
    except (KeyError, OSError, ValueError) as error:
        module.fail_json(msg=f"The ssh key of {given['user']}: {error}")


if __name__ == "__main__":
    main()
