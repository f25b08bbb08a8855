#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Connect from this node to the listeners of the others, and resolve their names. Read-only."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: proof_reach
short_description: Connect from a node to the listeners of the others, and resolve their names
description:
  - Connects to every listener that M(proof_listener) has started, on each of its ports, and reads what it sends, which
    is enough for packets of the largest size. Resolves the nodes' host names as a program would.
  - Does not fail for a peer that is not reached, so that all nodes can be judged together.
version_added: "0.2.0"
options:
  host:
    description: Inventory name of this node.
    type: str
    required: true
  token:
    description: As M(proof_listener) got it.
    type: str
    required: true
  peers:
    description: >-
      JSON list of the C(endpoint) of this node and of those that it tries, as M(proof_listener) returns it; the filter
      P(peers_of#filter) chooses them. Text, as so many records for each of a thousand nodes would be templated one by
      one.
    type: str
    required: true
  timeout:
    description: Seconds that one connection may take.
    type: float
    default: 10
  parallel:
    description: How many connections at a time.
    type: int
    default: 128
  names:
    description: Whether to resolve names.
    type: bool
    default: true
extends_documentation_fragment: read_only
author:
  - trainyard
seealso:
  - module: proof_listener
  - module: reach_verdict
"""

EXAMPLES = r"""
- name: Connect to all others
  proof_reach:
    host: "{{ inventory_hostname }}"
    token: "{{ token }}"
    peers: "{{ endpoints }}"
"""

RETURN = r"""
tried:
  description: Number of connections that were tried.
  returned: success
  type: int
failures:
  description: Connections that failed, each with C(host) (the peer), C(way) and C(reason).
  returned: success
  type: list
  elements: dict
  sample: [{host: n3, way: rendezvous port, reason: no answer within 10 s}]
resolved:
  description: Number of names that were asked for.
  returned: success
  type: int
names:
  description: Names that lead elsewhere, each with C(host) (whose name it is), C(name), C(found) and C(expected).
  returned: success
  type: list
  elements: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trainyard_node.reach import connect_all, read_peers, wrong_names


def main() -> None:
    """Connect, and return what failed."""
    module = AnsibleModule(
        argument_spec={
            "host": {"type": "str", "required": True},
            "token": {"type": "str", "required": True, "no_log": False},
            "peers": {"type": "str", "required": True},
            "timeout": {"type": "float", "default": 10},
            "parallel": {"type": "int", "default": 128},
            "names": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    given = module.params
    try:
        peers = read_peers(given["peers"])
    except ValueError as error:
        module.fail_json(msg=f"{given['host']}: connections could not be tried: {error}")
    tried, failures = connect_all(
        [peer for peer in peers if peer.host != given["host"]],
        given["token"],
        max(0.1, given["timeout"]),
        max(1, given["parallel"]),
    )
    resolved, names = wrong_names(peers) if given["names"] else (0, [])
    module.exit_json(changed=False, tried=tried, failures=failures, resolved=resolved, names=names)


if __name__ == "__main__":
    main()
