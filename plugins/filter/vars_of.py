# SPDX-License-Identifier: Apache-2.0
"""Filter plugin vars_of: some variables of many hosts, as records that can be judged together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

DOCUMENTATION = r"""
name: vars_of
short_description: Some variables of many hosts, as records
description:
  - What C(map('extract', hostvars, NAME)) does for one variable that all hosts have, for several that may be missing.
options:
  _input:
    description: Names of hosts.
    type: list
    elements: str
    required: true
  hostvars:
    description: The variable of that name.
    type: dict
    required: true
  names:
    description: Names of the variables.
    type: list
    elements: str
    required: true
author: trainyard
"""

EXAMPLES = r"""
- name: Show who is connected to where
  ansible.builtin.debug:
    msg: "{{ ansible_play_hosts | vars_of(hostvars, ['ansible_host', 'ansible_user']) }}"
"""

RETURN = r"""
_value:
  description: For each host a dictionary with C(name) and those of the variables that it has.
  type: list
  elements: dict
"""


def vars_of(
    hosts: Iterable[str], hostvars: Mapping[str, Mapping[str, Any]], names: Iterable[str]
) -> list[dict[str, Any]]:
    """Return for each host its name and those of the variables that it has."""
    wanted, records = list(names), []
    for host in hosts:
        variables = hostvars[host]
        records.append({"name": host, **{name: variables[name] for name in wanted if name in variables}})
    return records


class FilterModule:
    """See the module's docstring."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filter by its name."""
        return {"vars_of": vars_of}
