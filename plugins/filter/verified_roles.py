# SPDX-License-Identifier: Apache-2.0
"""Filter plugin verified_roles: which roles prove what they have installed, and where."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ansible.module_utils.trainyard.verify import phases

DOCUMENTATION = r"""
name: verified_roles
short_description: Which roles prove what they have installed, and where
description:
  - Those that were asked for; in the run that has just built the cluster only those whose own proof could not see
    what came after it, and cheap ones.
options:
  _input:
    description: Hosts that answer, in the order of the inventory.
    type: list
    elements: str
    required: true
  groups:
    description: The groups of the inventory.
    type: dict
    required: true
  frameworks:
    description: C(trainyard_frameworks).
    type: list
    elements: str
    required: true
  nvidia:
    description: C(trainyard_nvidia).
    type: list
    elements: str
    required: true
  manage_system:
    description: C(trainyard_manage_system).
    type: bool
    required: true
  fresh:
    description: Whether this run has just built the cluster.
    type: bool
    required: true
author: trainyard
"""

EXAMPLES = r"""
- name: Show them
  ansible.builtin.debug:
    msg: "{{ ['n1', 'n2'] | verified_roles(groups, ['pytorch'], [], manage_system=true, fresh=false) }}"
"""

RETURN = r"""
_value:
  description: By role its hosts.
  type: dict
  sample: {pytorch: [n1, n2], node_baseline: [n1, n2]}
"""


def verified_roles(
    answered: Sequence[str],
    groups: Mapping[str, Sequence[str]],
    frameworks: Iterable[str],
    nvidia: Iterable[str],
    manage_system: bool,
    fresh: bool,
) -> dict[str, list[str]]:
    """Return by role its hosts."""
    return phases.verified_roles(
        list(answered), groups, list(frameworks), list(nvidia), manage_system=bool(manage_system), fresh=bool(fresh)
    )


class FilterModule:
    """See the module's docstring."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filter by its name."""
        return {"verified_roles": verified_roles}
