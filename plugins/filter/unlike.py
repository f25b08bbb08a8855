# SPDX-License-Identifier: Apache-2.0
"""Filter plugin unlike: which files and folders a node does not have as they are wanted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible.module_utils.trainyard.software.files import unlike

DOCUMENTATION = r"""
name: unlike
short_description: Which files and folders a node does not have as they are wanted
description:
  - Compares a list for C(node_files) with what a module has read on the node, so that tasks which write run only where
    something differs.
options:
  _input:
    description: Entries as for C(node_files); C(sha256) may stand in place of C(content).
    type: list
    elements: dict
    required: true
  found:
    description: What the node has, by path.
    type: dict
    required: true
author: trainyard
"""

EXAMPLES = r"""
- name: Write them where they differ
  node_files:
    files: "{{ wanted }}"
  when: wanted | unlike(node.files) | length > 0
"""

RETURN = r"""
_value:
  description: Paths of what is missing or differs.
  type: list
  elements: str
"""


class FilterModule:
    """See the module's docstring."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filter by its name."""
        return {"unlike": unlike}
