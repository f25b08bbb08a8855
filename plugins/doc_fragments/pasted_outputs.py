# SPDX-License-Identifier: Apache-2.0
"""The option of modules that can read what tools printed somewhere else."""

from __future__ import annotations


class ModuleDocFragment:
    """Documentation of that option."""

    DOCUMENTATION = r"""
options:
  capture:
    description:
      - File with what tools printed on some machine, which is read instead of this one, as people paste it into a mail
        or a ticket. There may be several outputs, prompts with their command lines, colours and line ends of Windows.
      - C(docs/captures.md) lists the tools.
    type: path
"""
