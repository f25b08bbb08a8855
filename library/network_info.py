#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Read the networks of a node: interfaces and RDMA ports."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: network_info
short_description: Read the interfaces and RDMA ports of a node
description:
  - Returns all network interfaces with their addresses, and all ports of RDMA devices.
  - Reads sysfs and C(ip -json address), or the kernel without iproute2. Works for an unprivileged user.
options:
  user: {description: User whose C(~/.nccl.conf) counts. The default is the user that runs the module., type: str}
extends_documentation_fragment: [captured_machine, saved_output, read_only]
seealso:
  - module: accelerator_info
"""

EXAMPLES = r"""
- name: Read the networks
  network_info:
    user: train
  register: found

- name: Stop if an RDMA port is down
  ansible.builtin.assert:
    that: found.networks.rdma | rejectattr('active') | list | length == 0
"""

RETURN = r"""
networks:
  description: >-
    C(interfaces) with C(name), C(up), C(state), C(mtu), C(mac), C(kind) (physical, bond, bridge, virtual or loopback),
    C(speed_mbps) and C(addresses) with prefix lengths; C(rdma) ports with C(device), C(port), C(state),
    C(physical_state), C(rate_gbps), C(link_layer), C(netdev) and C(active); files (C(nccl_conf)) and settings
    (C(nccl_settings)) of NCCL; C(problems). Unknown values are null.
  returned: success
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard.hardware.captures import networks
from ansible.module_utils.trainyard_node.hardware.capture_file import read_capture
from ansible.module_utils.trainyard_node.hardware.network_discovery import read_networks
from ansible.module_utils.trainyard_node.machine.tree import Tree


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={"user": {"type": "str"}, "root": {"type": "path", "default": "/"}, "capture": {"type": "path"}},
        supports_check_mode=True,
    )
    if module.params["capture"]:
        module.exit_json(changed=False, networks=read_capture(module, networks))
    module.exit_json(changed=False, networks=read_networks(Tree(module.params["root"]), module.params["user"]))


if __name__ == "__main__":
    main()
