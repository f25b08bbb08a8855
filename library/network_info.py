#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Read the networks of a node: interfaces and RDMA ports."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: network_info
short_description: Read the interfaces and RDMA ports of a node
description:
  - Returns every network interface with its addresses, and every port of every RDMA device with its state, rate,
    link layer and netdev.
  - Reads sysfs and C(ip -json address); without iproute2 the kernel is asked directly. Works for an unprivileged
    user.
  - Lists the nccl.conf files that would override a job's environment without a word.
options:
  user:
    description: User whose C(~/.nccl.conf) counts. Default is the user that runs the module.
    type: str
extends_documentation_fragment: [captured_machine, pasted_outputs, read_only]
seealso:
  - module: accelerator_info
  - module: node_info
"""

EXAMPLES = r"""
- name: Read the networks
  network_info:
    user: train
  register: found

- name: Read what somebody pasted of ibstat and ibdev2netdev
  network_info:
    capture: ticket-4711.txt
  delegate_to: localhost

- name: Stop where an RDMA port is down
  ansible.builtin.assert:
    that: found.networks.rdma | rejectattr('active') | list | length == 0
    fail_msg: >-
      {{ inventory_hostname }}: RDMA ports that are not active:
      {{ found.networks.rdma | rejectattr('active') | map(attribute='device') | join(', ') }}
"""

RETURN = r"""
networks:
  description: The networks of the node.
  returned: success
  type: dict
  contains:
    interfaces:
      description: All network interfaces by name.
      type: list
      elements: dict
      contains:
        name:
          description: Name of the interface.
          type: str
        up:
          description: Whether it is switched on and has a carrier.
          type: bool
        state:
          description: The kernel's operational state, such as C(up), C(down) or C(unknown).
          type: str
        mtu:
          description: MTU in bytes.
          type: int
        mac:
          description: Hardware address (20 bytes on InfiniBand).
          type: str
        kind:
          description: C(physical), C(bond), C(bridge), C(virtual) or C(loopback).
          type: str
        speed_mbps:
          description: Speed of the link in Mb/s; null where the driver does not know.
          type: int
        addresses:
          description: IPv4 and IPv6 addresses with their prefix lengths.
          type: list
          elements: str
          sample: [10.77.0.2/24]
    rdma:
      description: All RDMA ports by device and number.
      type: list
      elements: dict
      contains:
        device:
          description: Name of the RDMA device.
          type: str
          sample: mlx5_0
        port:
          description: Number of the port, from 1.
          type: int
        state:
          description: Logical state.
          type: str
          sample: ACTIVE
        physical_state:
          description: Physical state.
          type: str
          sample: LinkUp
        rate_gbps:
          description: Rate in Gb/s.
          type: float
          sample: 400.0
        link_layer:
          description: C(InfiniBand) or C(Ethernet) (RoCE).
          type: str
        netdev:
          description: Network interface of the port, for RoCE over a bond the bond; null where it has none.
          type: str
          sample: ib0
        active:
          description: Whether the port can carry traffic now.
          type: bool
    nccl_conf:
      description: Files from which NCCL would take settings.
      type: list
      elements: str
      sample: [/etc/nccl.conf]
    nccl_settings:
      description: The settings in these files.
      type: dict
      sample: {NCCL_SOCKET_IFNAME: docker0}
    problems:
      description: What could not be read; empty on a healthy node.
      type: list
      elements: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard.hardware.captures import networks
from ansible.module_utils.trainyard_node.hardware.captures import read_capture
from ansible.module_utils.trainyard_node.hardware.interfaces import read_networks
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
