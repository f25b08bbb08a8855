#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Ansible module node_identity: read a node's system, names, addresses, training user and limits."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_identity
short_description: Read a node's system, names, addresses, training user and limits
description:
  - Reads everything by which the nodes of a cluster are compared before they are changed, and the facts that roles
    need, so that M(ansible.builtin.setup) need not run, too.
  - User and group are looked up through NSS, so that users of a directory service count.
options:
  files: {description: "Paths whose owner, mode and digest are read.", type: list, elements: str, default: []}
  user: {description: Name of the training user., type: str, required: true}
  uid: {description: The requested uid., type: int, required: true}
  group: {description: The user's primary group., type: str, required: true}
  gid: {description: The requested gid., type: int, required: true}
extends_documentation_fragment: read_only
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
ansible_facts:
  description: Facts of M(ansible.builtin.setup) about system and managers.
  returned: success
  type: dict
container: {description: "The kind of container, empty for a machine.", returned: success, type: str}
files: {description: "Kind, owner, group, mode and sha256 of existing O(files).", returned: success, type: dict}
hostname: {description: Kernel host name., returned: success, type: str}
addresses:
  description: Global addresses of all interfaces, IPv4 first.
  returned: success
  type: list
  elements: str
default_address: {description: "Address on the default route, or empty.", returned: success, type: str}
user: {description: "Name, uid, gid, home and shell of the user, or null.", returned: success, type: dict}
uid_owner: {description: "Name of the user with O(uid), or empty.", returned: success, type: str}
gid_owner: {description: "Name of the group with O(gid), or empty.", returned: success, type: str}
group_gid: {description: "The gid of O(group), or null.", returned: success, type: int}
hard_limits:
  description: C(memlock) in bytes and C(nofile) of process 1, null for unlimited.
  returned: success
  type: dict
own_limits: {description: Soft and hard limits of the module itself., returned: success, type: dict}
can_raise_limits: {description: Whether process 1 may raise hard limits., returned: success, type: bool}
nr_open: {description: "The kernel's maximum of open files, fs.nr_open.", returned: success, type: int}
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.facts import ansible_collector, default_collectors
from ansible.module_utils.facts.namespace import PrefixFactNamespace
from ansible.module_utils.trainyard_node.cluster.identity import read_identity
from ansible.module_utils.trainyard_node.machine.files import read_files
from ansible.module_utils.trainyard_node.machine.tree import Tree

SUBSETS = ["!all", "!min", "distribution", "pkg_mgr", "service_mgr", "virtual"]


def read_facts(module: AnsibleModule) -> dict[str, Any]:
    """Return the facts of SUBSETS as ansible.builtin.setup does."""
    collector = ansible_collector.get_ansible_collector(
        all_collector_classes=default_collectors.collectors,
        namespace=PrefixFactNamespace(namespace_name="ansible", prefix="ansible_"),
        gather_subset=SUBSETS,
        minimal_gather_subset=frozenset(),
    )
    facts: dict[str, Any] = collector.collect(module=module)
    # The collector also returns notes about itself.
    return {name: value for name, value in facts.items() if name not in ("gather_subset", "module_setup")}


def container(facts: dict[str, Any]) -> str:
    """Return the kind of container that the node is, or ""."""
    inside = "container" in facts.get("ansible_virtualization_tech_guest", ())
    return str(facts.get("ansible_virtualization_type", "")) if inside else ""


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "files": {"type": "list", "elements": "str", "default": []},
            "user": {"type": "str", "required": True},
            "uid": {"type": "int", "required": True},
            "group": {"type": "str", "required": True},
            "gid": {"type": "int", "required": True},
        },
        supports_check_mode=True,
    )
    params = module.params
    try:
        found = read_identity(Tree("/"), params["user"], params["uid"], params["group"], params["gid"])
    except (OSError, ValueError) as error:
        module.fail_json(msg=f"This node could not be read: {error}")
    facts = read_facts(module)
    found.update(ansible_facts=facts, container=container(facts), files=read_files(params["files"]))
    module.exit_json(changed=False, **found)


if __name__ == "__main__":
    main()
