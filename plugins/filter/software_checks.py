# SPDX-License-Identifier: Apache-2.0
"""Filter plugin software_checks: what roles say of what they installed, as checks of the phase software."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ansible.module_utils.trainyard.verify import software

DOCUMENTATION = r"""
name: software_checks
short_description: What roles say of what they installed, over all nodes, as checks
description:
  - Turns the outcomes of the roles' own proofs (C(tasks_from=verify)) into checks, one for each role, or for each
    different fault of it.
options:
  _input:
    description:
      - Each host that answered, with C(name), and in C(__verify_noted) by role C(fault) (its message, empty where it
        holds) and C(all), whether that message is about all nodes together.
    type: list
    elements: dict
    required: true
  roles:
    description: By role that was to be proved, the hosts it was to be proved on.
    type: dict
    required: true
  again:
    description: Command that builds the cluster again.
    type: str
    required: true
author: trainyard
"""

EXAMPLES = r"""
- name: Show the checks
  ansible.builtin.debug:
    msg: "{{ hosts | vars_of(hostvars, ['__verify_noted']) | software_checks({'pytorch': hosts}, again) }}"
"""

RETURN = r"""
_value:
  description: Checks, as module_utils/trainyard/findings/checks.py has them.
  type: list
  elements: dict
"""


def software_checks(
    hosts: Iterable[Mapping[str, Any]], roles: Mapping[str, Sequence[str]], again: str
) -> list[dict[str, Any]]:
    """Return the checks of all roles."""
    said = {host["name"]: host.get("__verify_noted") or {} for host in hosts}
    checks = []
    for role, wanted in roles.items():
        of_role = {host: outcomes[role] for host, outcomes in said.items() if role in outcomes}
        checks += software.judge(role, wanted, of_role, again)
    return [check.as_dict() for check in checks]


class FilterModule:
    """See the module's docstring."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filter by its name."""
        return {"software_checks": software_checks}
