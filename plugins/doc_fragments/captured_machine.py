# SPDX-License-Identifier: Apache-2.0
"""The option of modules that can read a captured machine instead of the one that they run on."""

from __future__ import annotations


class ModuleDocFragment:
    """Documentation of that option."""

    DOCUMENTATION = r"""
options:
  root:
    description:
      - Folder of a captured machine to read instead of this one, for tests.
      - Files lie at their own paths below it, outputs of commands in C(commands/NAME.out).
    type: path
    default: /
"""
