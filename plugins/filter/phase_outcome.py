# SPDX-License-Identifier: Apache-2.0
"""Filter plugin phase_outcome: what came of a phase of a proof."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible.module_utils.trainyard.verify import phases

DOCUMENTATION = r"""
name: phase_outcome
short_description: What came of a phase of a proof
description:
  - The worst of its checks decides. A phase without checks was stopped by something, unless it does not apply.
options:
  _input:
    description: Its checks; null where it has come to none.
    type: list
    elements: dict
    required: true
  phase:
    description: Its name.
    type: str
    required: true
  skipped:
    description: Why it does not apply; empty where it does.
    type: str
    required: true
  again:
    description: Command that proves the cluster again.
    type: str
    required: true
author: trainyard
"""

EXAMPLES = r"""
- name: Say what came of it
  ansible.builtin.debug:
    msg: "{{ (verify_drift | phase_outcome('drift', '', again)).said }}"
"""

RETURN = r"""
_value:
  description: C(checks), C(state), C(reason) of what was skipped, and C(said), all of it in a line.
  type: dict
"""


def phase_outcome(checks: Sequence[Mapping[str, Any]] | None, phase: str, skipped: str, again: str) -> dict[str, Any]:
    """Return checks, state, reason and what is said."""
    return phases.phase_outcome(checks, phase, skipped, again)


class FilterModule:
    """See the module's docstring."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filter by its name."""
        return {"phase_outcome": phase_outcome}
