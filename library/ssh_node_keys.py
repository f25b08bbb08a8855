#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Ansible module ssh_node_keys: a node's public keys for the mesh; makes the training user's key if it is missing."""

from __future__ import annotations

DOCUMENTATION = r"""
module: ssh_node_keys
short_description: Read a node's ssh keys and settings, and make the training user's key
description:
  - Returns the public halves of the node's host key and of the training user's key. Private keys stay where they are.
  - Makes the user's key (ed25519, in a folder of the node, readable by the user alone) when it is missing, unless
    something on the node stands in the way of the mesh.
  - Does not fail for what it finds; it returns the findings, so that those of all nodes can be reported together.
  - Reads O(files) and the lines of /etc/ssh/ssh_known_hosts that end with O(mark), so that nothing is written again
    that is there.
options:
  files:
    description: Paths of files and folders to read owner, mode and digest of.
    type: list
    elements: str
    default: []
  mark:
    description: Last word of the lines in /etc/ssh/ssh_known_hosts that are looked for.
    type: str
    required: true
  host:
    description: Inventory name of this node, for the findings and the key's comment.
    type: str
    required: true
  user:
    description: The training user.
    type: str
    required: true
  key:
    description: Path of the user's private key.
    type: path
    required: true
  host_key:
    description: Path of sshd's private host key that is to be certified.
    type: path
    default: /etc/ssh/ssh_host_ed25519_key
attributes:
  check_mode:
    support: full
    description: Reads the node and makes no key.
"""

EXAMPLES = r"""
- name: Read the keys, make the user's
  ssh_node_keys:
    host: "{{ inventory_hostname }}"
    user: train
    key: /etc/trainyard/ssh/user_ed25519
    mark: trainyard:lab
  register: keys
"""

RETURN = r"""
files:
  description: By path what there is of O(files), with kind, owner, uid, group, gid, mode and sha256.
  returned: success
  type: dict
known_hosts:
  description: The lines of /etc/ssh/ssh_known_hosts that end with O(mark).
  returned: success
  type: list
  elements: str
host_key:
  description: Public host key, empty when there is none.
  returned: success
  type: str
user_key:
  description: Public key of the training user, empty when it is still to be made.
  returned: success
  type: str
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
findings:
  description: What stands in the way, with C(host), C(check), C(found), C(expected) and C(action).
  returned: success
  type: list
  elements: dict
"""

import os
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard_node.cluster.identity import read_addresses
from ansible.module_utils.trainyard_node.cluster.ssh_keys import key_faults, make_key, node_findings, public_key
from ansible.module_utils.trainyard_node.machine.files import read_files
from ansible.module_utils.trainyard_node.machine.tree import Tree


def marked_lines(tree: Tree, mark: str) -> list[str]:
    """Return the lines of /etc/ssh/ssh_known_hosts whose last word is `mark`."""
    lines = (tree.text("/etc/ssh/ssh_known_hosts") or "").splitlines()
    return [line for line in lines if line.endswith(f" {mark}")]


def main() -> None:
    """Look first; make the key when nothing stands in the way."""
    module = AnsibleModule(
        argument_spec={
            "host": {"type": "str", "required": True},
            "files": {"type": "list", "elements": "str", "default": []},
            "mark": {"type": "str", "required": True},
            "user": {"type": "str", "required": True},
            "key": {"type": "path", "required": True, "no_log": False},
            "host_key": {"type": "path", "default": "/etc/ssh/ssh_host_ed25519_key", "no_log": False},
        },
        supports_check_mode=True,
    )
    given, tree = module.params, Tree("/")
    key = Path(given["key"])
    try:
        addresses, default_address = read_addresses(tree)
        findings = node_findings(tree, given["host"], given["user"], given["host_key"], str(key.parent))
        faults = [] if findings else key_faults(key, given["user"])
        if faults and not module.check_mode:
            make_key(tree, key, given["user"], f"{given['user']}@{given['host']}")
        module.exit_json(
            changed=bool(faults),
            files=read_files(given["files"]),
            known_hosts=marked_lines(tree, given["mark"]),
            host_key=public_key(Path(f"{given['host_key']}.pub")),
            user_key=public_key(Path(f"{key}.pub")),
            hostname=os.uname().nodename,
            addresses=addresses,
            default_address=default_address,
            findings=[finding.as_dict() for finding in findings],
            diff={"before": "".join(f"{key}: {fault}\n" for fault in faults), "after": ""},
        )
    except (OSError, ValueError) as error:
        module.fail_json(msg=f"The ssh keys of this node: {error}")


if __name__ == "__main__":
    main()
