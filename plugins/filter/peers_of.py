# SPDX-License-Identifier: Apache-2.0
"""Filter plugin peers_of: whom a node tests when not every node can test every other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ansible.module_utils.trainyard.cluster.ssh_logins import parse_peers, peers

DOCUMENTATION = r"""
name: peers_of
short_description: Whom a node tests
description:
  - All other nodes; or this many of them, those 1, 2, 4, 8, ... places on around the ring of nodes, so that near and
    far ones are among them. Every node is then tested by as many others.
  - On the controller, so that a node is sent its own part only.
options:
  _input:
    description: All nodes in inventory order, names.
    type: list
    required: true
  own:
    description: Name of the node.
    type: str
    required: true
  most:
    description: V(all), or how many peers.
    type: str
    required: true
  changed:
    description:
      - Nodes that something was changed on. Of the pairs only those with one of them are left then, and each node's
        first. Without it all pairs.
    type: list
author: trainyard
"""

EXAMPLES = r"""
- name: Log in to four others
  ssh_reach:
    host: "{{ inventory_hostname }}"
    nodes: "{{ ansible_play_hosts | peers_of(inventory_hostname, 4) }}"
    user: train
"""

RETURN = r"""
_value:
  description: Those of the input that the node tests, the next ones first.
  type: list
"""


def peers_of(nodes: Sequence[str], own: str, most: str | int, changed: Sequence[str] | None = None) -> list[str]:
    """Return the part of `nodes` that the node `own` tests. Raises ValueError."""
    if own not in nodes:
        raise ValueError(f"{own} is none of the nodes: {', '.join(nodes)}")
    return peers(list(nodes), own, parse_peers(str(most)), None if changed is None else set(changed))


class FilterModule:
    """See the module's docstring."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filter by its name."""
        return {"peers_of": peers_of}
