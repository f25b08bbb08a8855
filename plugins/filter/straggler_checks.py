# SPDX-License-Identifier: Apache-2.0
"""Filter plugin straggler_checks: what pairs of nodes measured, as checks of the phase stragglers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible.module_utils.trainyard.verify import measured

DOCUMENTATION = r"""
name: straggler_checks
short_description: Stragglers as checks of the phase stragglers
description:
  - A check for each node that is slow, wrong or silent, else one for all.
options:
  _input:
    description: RV(pair_stragglers#module:stragglers) of M(pair_stragglers); empty where nothing was measured.
    type: dict
    required: true
  again:
    description: Command that repeats the phase.
    type: str
    required: true
author: trainyard
"""

EXAMPLES = r"""
- name: Show the checks
  ansible.builtin.debug:
    msg: "{{ verify_stragglers | straggler_checks('ansible-playbook playbooks/verify.yml -i mine') }}"
"""

RETURN = r"""
_value:
  description: Checks, as module_utils/trainyard/findings/checks.py has them.
  type: list
  elements: dict
"""


def straggler_checks(stragglers: Mapping[str, Any], again: str) -> list[dict[str, Any]]:
    """Return the checks; none where nothing was measured."""
    return [check.as_dict() for check in measured.straggler_checks(stragglers, again)] if stragglers else []


class FilterModule:
    """See the module's docstring."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filter by its name."""
        return {"straggler_checks": straggler_checks}
