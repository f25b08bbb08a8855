#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Read what the verification of a cluster compares and checks on one node."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: verify_facts
short_description: Read what the verification of a cluster compares and checks on one node
description:
  - Returns versions, firmware, limits and networks (what nodes of one kind should have in common), and the health of
    GPUs, NPUs, RDMA ports and network interfaces with their error counters, in one call.
  - A verification asks all nodes at once, with M(verify); this shows what one of them says.
  - Reads only. Versions come from metadata, headers and file names; no framework is imported.
  - A fact is empty where the node does not have the thing, and null where it has it and does not say.
options:
  host: {description: Inventory name of this node., type: str, default: ""}
  trainyard_root: {description: Folder of the software that the project installs., type: path, default: /opt/trainyard}
  venv_root: {description: Folder whose environments are compared., type: path, default: /opt/trainyard/venvs}
  ascend_root: {description: Folder of Ascend's software., type: path, default: /usr/local/Ascend}
  user:
    description: Training user, whose limits and C(~/.nccl.conf) count; empty for the caller.
    type: str
    default: ""
  network: {description: "Job network, a CIDR or an interface; empty for that of O(address).", type: str, default: ""}
  address: {description: Address or name by which the inventory reaches the node., type: str, default: localhost}
  alone: {description: "Whether this is the only node, so that loopback is enough.", type: bool, default: false}
  devices_only: {description: "Read only the devices, as for a second reading.", type: bool, default: false}
extends_documentation_fragment: [captured_machine, read_only]
seealso:
  - module: verify
"""

EXAMPLES = r"""
- name: Read what is compared
  verify_facts:
    host: "{{ inventory_hostname }}"
    address: "{{ ansible_host | default(inventory_hostname) }}"
    user: train
  register: facts
"""

RETURN = r"""
host: {description: O(host)., returned: success, type: str}
hostname: {description: Host name that the kernel has., returned: without O(devices_only), type: str}
facts:
  description: Flat facts by name. Memory in MiB, speeds in Mb/s, memlock in KiB.
  returned: without O(devices_only)
  type: dict
  sample: {kernel: 6.1.0-31-amd64, os: debian 12.9, driver: "", torch: 2.13.0, mtu: 1500, memlock: unlimited}
environments:
  description: Versions of all distributions of each environment in O(venv_root), and of its C(python).
  returned: without O(devices_only)
  type: dict
  sample: {pytorch: {python: 3.11.2, torch: 2.13.0}}
hardware:
  description: Kinds of accelerators and network adapters on the PCI bus (vendor and device), each once.
  returned: without O(devices_only)
  type: list
  elements: str
  sample: ["10de:2330", "15b3:1021"]
network:
  description: C(interface) and C(address), or C(problem) and C(action); all C(addresses).
  returned: without O(devices_only)
  type: dict
devices:
  description:
    - C(vendor) of accelerators; C(gpus), C(xids) and C(problems) of NVIDIA's, C(npus) and C(npu_problems) of Ascend's;
      C(rdma) ports with their error C(counters); error counters of C(interfaces); C(boot_id).
  returned: success
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard_node.machine.tree import Tree
from ansible.module_utils.trainyard_node.verify.facts import read_machine


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "host": {"type": "str", "default": ""},
            "trainyard_root": {"type": "path", "default": "/opt/trainyard"},
            "venv_root": {"type": "path", "default": "/opt/trainyard/venvs"},
            "ascend_root": {"type": "path", "default": "/usr/local/Ascend"},
            "user": {"type": "str", "default": ""},
            "network": {"type": "str", "default": ""},
            "address": {"type": "str", "default": "localhost"},
            "alone": {"type": "bool", "default": False},
            "devices_only": {"type": "bool", "default": False},
            "root": {"type": "path", "default": "/"},
        },
        supports_check_mode=True,
    )
    params = module.params
    same = ("host", "user", "ascend_root", "network", "alone", "devices_only")
    found = read_machine(
        Tree(params["root"]),
        root=params["trainyard_root"],
        venvs=params["venv_root"],
        host_address=params["address"],
        **{name: params[name] for name in same},
    )
    module.exit_json(changed=False, **found)


if __name__ == "__main__":
    main()
