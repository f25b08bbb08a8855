#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Ansible module node_identity: who a node says it is (names, addresses, training user, limits). Read-only."""
from __future__ import annotations

DOCUMENTATION = r"""
module: node_identity
short_description: Read a node's names, addresses, training user and limits
description:
  - One read-only look at a node for everything that the nodes of a cluster are compared by before they are changed.
  - User and group are looked up through NSS, so that users of a directory service count as well.
options:
  user:
    description: Name of the training user to look up.
    type: str
    required: true
  uid:
    description: The uid that this user shall have; its present owner is returned.
    type: int
    required: true
  group:
    description: The user's primary group.
    type: str
    required: true
  gid:
    description: The gid that this group shall have; its present owner is returned.
    type: int
    required: true
extends_documentation_fragment: read_only
author: trainyard
"""

EXAMPLES = r"""
- name: Read who the node is
  node_identity:
    user: train
    uid: 2000
    group: train
    gid: 2000
  register: node
"""

RETURN = r"""
hostname:
  description: Kernel host name.
  returned: success
  type: str
addresses:
  description: Global addresses of all interfaces, IPv4 first.
  returned: success
  type: list
  elements: str
default_address:
  description: Address of the interface with the default route, empty without one.
  returned: success
  type: str
user:
  description: Name, uid, gid, home and shell of the user; null when there is none.
  returned: success
  type: dict
uid_owner:
  description: Name of the user who holds O(uid), empty when it is free.
  returned: success
  type: str
gid_owner:
  description: Name of the group that holds O(gid), empty when it is free.
  returned: success
  type: str
group_gid:
  description: The gid of O(group), null when there is no such group.
  returned: success
  type: int
hard_limits:
  description: Hard limits of process 1 for V(memlock) in bytes and V(nofile), null for unlimited.
  returned: success
  type: dict
own_limits:
  description: Soft and hard limits under which the module itself ran.
  returned: success
  type: dict
can_raise_limits:
  description: Whether process 1 may raise hard limits (CAP_SYS_RESOURCE).
  returned: success
  type: bool
nr_open:
  description: The kernel's ceiling for open files, fs.nr_open.
  returned: success
  type: int
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard_node.identity import read_identity
from ansible.module_utils.trainyard_node.tree import Tree


def main() -> None:
    """Read the node and return what it said."""
    module = AnsibleModule(
        argument_spec={
            "user": {"type": "str", "required": True},
            "uid": {"type": "int", "required": True},
            "group": {"type": "str", "required": True},
            "gid": {"type": "int", "required": True},
        },
        supports_check_mode=True,
    )
    try:
        found = read_identity(Tree("/"), **module.params)
    except (OSError, ValueError) as error:
        module.fail_json(msg=f"This node could not be read: {error}")
    module.exit_json(changed=False, **found)


if __name__ == "__main__":
    main()
