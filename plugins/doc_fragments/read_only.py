# SPDX-License-Identifier: Apache-2.0
"""What modules that change nothing say of check mode."""

from __future__ import annotations


class ModuleDocFragment:
    """Documentation of such a module."""

    DOCUMENTATION = r"""
attributes:
  check_mode:
    support: full
    description: Nothing is changed in either mode.
"""
