# SPDX-License-Identifier: Apache-2.0
"""The option of modules that say of which node they speak."""

from __future__ import annotations


class ModuleDocFragment:
    """Documentation of that option."""

    DOCUMENTATION = r"""
options:
  host:
    description: The node's name in the inventory.
    type: str
    required: true
"""
