#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Ansible module ssh_reach: which peers this node's training user can log in to, and why not. Read-only."""

from __future__ import annotations

DOCUMENTATION = r"""
module: ssh_reach
short_description: Test password-less ssh from a node to its peers
description:
  - Logs in to peers as the training user, by name and by those of O(addresses), many at a time, with strict host-key
    checking. Returns this node's row of the matrix with ssh's own reason for each failure.
  - A failed login is not a failure of the module, so that the rows of all nodes can be checked together.
  - Runs as root, which switches to the training user, or as that user.
options:
  nodes:
    description: Names of the peers in the order of the tests; the filter P(peers_of#filter) chooses them.
    type: list
    elements: str
    required: true
  user:
    description: The training user, on this node and on the peers.
    type: str
    required: true
  connect_timeout:
    description: Time limit of a connection in seconds.
    type: int
    default: 10
  parallel:
    description: Number of logins at a time. More than ten may exceed sshd's MaxStartups.
    type: int
    default: 8
  addresses:
    description: Declared addresses of nodes. A peer whose name resolves to one is also tested by it.
    type: list
    elements: str
    default: []
extends_documentation_fragment: [inventory_name, read_only]
"""

EXAMPLES = r"""
- name: Test ssh to every other node
  ssh_reach:
    host: "{{ inventory_hostname }}"
    nodes: "{{ ansible_play_hosts }}"
    user: train
  register: row
"""

RETURN = r"""
row:
  description: By peer, V(true) when it was reached by name and by its address of O(addresses).
  returned: success
  type: dict
  sample: {n2: true, n3: false}
logins:
  description: Number of logins tried.
  returned: success
  type: int
failures:
  description: One record for each peer and reason.
  returned: success
  type: list
  elements: dict
  sample: [{host: n1, peer: n3, targets: "n3, 10.77.0.13", reason: "train@n3: Permission denied (publickey)."}]
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard.cluster.ssh_options import CONNECT_TIMEOUT_S
from ansible.module_utils.trainyard_node.cluster.ssh_logins import LoginsError, logins


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "host": {"type": "str", "required": True},
            "nodes": {"type": "list", "elements": "str", "required": True},
            "user": {"type": "str", "required": True},
            "connect_timeout": {"type": "int", "default": CONNECT_TIMEOUT_S},
            "parallel": {"type": "int", "default": 8},
            "addresses": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    try:
        module.exit_json(changed=False, **logins(**module.params))
    except LoginsError as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
