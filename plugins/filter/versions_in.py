# SPDX-License-Identifier: Apache-2.0
"""Filter plugin versions_in: what an environment of Python has, in words that are equal where it is equal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

DOCUMENTATION = r"""
name: versions_in
short_description: What an environment of Python has, in words
description:
  - So that environments of all nodes can be compared, and be named where they differ.
options:
  _input:
    description: What M(python_environment) returned.
    type: dict
    required: true
  texts:
    description: By name of a package a text with C(%s) in place of its version, in the order of the result.
    type: dict
    required: true
author: trainyard
"""

EXAMPLES = r"""
- name: Show it
  ansible.builtin.debug:
    msg: "{{ environment | versions_in({'torch': 'torch %s'}) }}"
"""

RETURN = r"""
_value:
  description: The texts with the versions, C(missing) for a package that is not there, and the Python.
  type: str
  sample: torch 2.13.0, Python 3.11
"""


def versions_in(environment: Mapping[str, Any], texts: Mapping[str, str]) -> str:
    """Return the texts with the versions, and the Python."""
    found = [text % environment["packages"].get(name, "missing") for name, text in texts.items()]
    return ", ".join([*found, f"Python {'.'.join(environment['version'].split('.')[:2])}"])


class FilterModule:
    """See the module's docstring."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filter by its name."""
        return {"versions_in": versions_in}
