# SPDX-License-Identifier: Apache-2.0
"""The option of modules that can read what a tool printed somewhere else."""

from __future__ import annotations


class ModuleDocFragment:
    """Documentation of that option."""

    DOCUMENTATION = r"""
options:
  capture:
    description:
      - File with what one command printed on some machine, which is read instead of this one. Colours and line ends of
        Windows do not matter.
      - C(docs/captures.md) lists the tools.
    type: path
"""
