#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Ansible module ssh_user_key: create the training user's key on a node, or repair it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: ssh_user_key
short_description: Create the training user's ssh key on a node
description:
  - Creates the user's key (ed25519, in a folder of the node, readable for the user only) if it is missing, and repairs
    owner, mode and public half. The private key never leaves the node.
options:
  user:
    description: The training user, who must exist.
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
    description: Creates no key, and reports the problems of an existing one.
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
  description: Public key of the training user, empty if it does not exist yet.
  returned: success
  type: str
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard_node.cluster.ssh_keys import key_problems, make_key, public_key
from ansible.module_utils.trainyard_node.machine.tree import Tree


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "user": {"type": "str", "required": True},
            "key": {"type": "path", "required": True, "no_log": False},
            "comment": {"type": "str", "required": True},
        },
        supports_check_mode=True,
    )
    params = module.params
    key = Path(params["key"])
    try:
        problems = key_problems(key, params["user"])
        if problems and not module.check_mode:
            make_key(Tree("/"), key, params["user"], params["comment"])
        module.exit_json(
            changed=bool(problems),
            user_key=public_key(Path(f"{key}.pub")),
            diff={"before": "".join(f"{key}: {problem}\n" for problem in problems), "after": ""},
        )
    except (KeyError, OSError, ValueError) as error:
        module.fail_json(msg=f"The ssh key of {params['user']}: {error}")


if __name__ == "__main__":
    main()
