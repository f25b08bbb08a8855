#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Read how many bytes the RDMA ports of a node have carried."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: rdma_traffic
short_description: Read how many bytes the RDMA ports of a node have carried
description:
  - Returns the bytes that every RDMA port has sent and received since it was started. Two readings around a benchmark
    tell M(collective_benchmark) which devices carried it.
  - Reads sysfs; works for an unprivileged user.
extends_documentation_fragment: [captured_machine, inventory_name, read_only]
seealso:
  - module: collective_benchmark
  - module: network_info
"""

EXAMPLES = r"""
- name: Read the counters before the benchmark
  rdma_traffic:
    host: "{{ inventory_hostname }}"
  register: before
"""

RETURN = r"""
traffic:
  description: The node's C(host), and C(ports) with C(sent) and C(received) bytes of each, null where nobody counts.
  returned: success
  type: dict
  sample: {host: n1, ports: {"mlx5_0:1": {sent: 81604378624, received: 81602281472}}}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard_node.hardware.rdma_traffic import read_traffic
from ansible.module_utils.trainyard_node.machine.tree import Tree


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={"host": {"type": "str", "required": True}, "root": {"type": "path", "default": "/"}},
        supports_check_mode=True,
    )
    ports = read_traffic(Tree(module.params["root"]))
    module.exit_json(changed=False, traffic={"host": module.params["host"], "ports": ports})


if __name__ == "__main__":
    main()
