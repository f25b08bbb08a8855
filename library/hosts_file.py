#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Ansible module hosts_file: keep the cluster's names in the hosts file of a node."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hosts_file
short_description: Keep a cluster's names in a block of /etc/hosts
description:
  - Writes the names and addresses of all nodes into its own block, and does not change the site's lines.
  - Removes the names from loopback lines such as Debian's C(127.0.1.1 NAME), whose address other nodes cannot reach.
  - Fails without a change if a line of the site gives one of the names another address, as the first line wins.
options:
  entries:
    description: One record for each node with C(address) and C(names).
    type: list
    elements: dict
    required: true
  left_out:
    description: Names of nodes outside this run (C(--limit)), whose lines in the block stay.
    type: list
    elements: str
    default: []
  block:
    description: Name of the block, as several clusters may share a node.
    type: str
    default: cluster
  path:
    description: The hosts file.
    type: path
    default: /etc/hosts
attributes:
  check_mode:
    support: full
    description: Returns the change and makes none.
  diff_mode:
    support: full
    description: Shows the file before and after.
"""

EXAMPLES = r"""
- name: Make the nodes' names known
  hosts_file:
    block: trainyard
    entries:
      - {address: 10.77.0.2, names: [n1]}
      - {address: 10.77.0.3, names: [n2, gpu-17]}
"""

RETURN = r"""
conflicts:
  description: Lines of the site that contradict the entries.
  returned: failure
  type: list
  elements: str
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard.cluster.hosts import Entry
from ansible.module_utils.trainyard.cluster.hosts_file import rewrite_hosts
from ansible.module_utils.trainyard_node.cluster.baseline_check import read_hosts
from ansible.module_utils.trainyard_node.machine.owned_file import difference, replace


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "entries": {"type": "list", "elements": "dict", "required": True},
            "left_out": {"type": "list", "elements": "str", "default": []},
            "block": {"type": "str", "default": "cluster"},
            "path": {"type": "path", "default": "/etc/hosts"},
        },
        supports_check_mode=True,
    )
    path = Path(module.params["path"])
    entries = [Entry(entry["address"], tuple(entry["names"])) for entry in module.params["entries"]]
    try:
        before = read_hosts(str(path))
        after, conflicts = rewrite_hosts(before, entries, module.params["block"], module.params["left_out"])
    except (OSError, ValueError) as error:
        module.fail_json(msg=f"{path} cannot be used: {error}")
    if conflicts:
        module.fail_json(
            msg=f"{path} contradicts the inventory: {'; '.join(conflicts)}. Correct these lines, or the inventory "
            "(ansible_host, trainyard_network). The file was not changed.",
            conflicts=conflicts,
        )
    if after != before and not module.check_mode:
        # Container engines mount this file, so it may need to be written in place.
        replace(module, path, after.encode("utf-8", "surrogateescape"), mode=0o644, unsafe_writes=True)
    module.exit_json(changed=after != before, diff=difference(path, before, after))


if __name__ == "__main__":
    main()
