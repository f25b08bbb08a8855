# SPDX-License-Identifier: Apache-2.0
"""Filter plugin benchmark_checks: what benchmarks measured, as checks of the phase bandwidth."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ansible.module_utils.trainyard.verify import measured

DOCUMENTATION = r"""
name: benchmark_checks
short_description: Benchmarks as checks of the phase bandwidth
description:
  - One check for the bandwidth of each benchmark, and one for the path of its bytes where that is known.
options:
  _input:
    description: Records of benchmarks, as M(collective_benchmark) returns them.
    type: list
    elements: dict
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
    msg: "{{ verify_benchmark_records | benchmark_checks('ansible-playbook playbooks/verify.yml -i mine') }}"
"""

RETURN = r"""
_value:
  description: Checks, as module_utils/trainyard/findings/checks.py has them.
  type: list
  elements: dict
"""


def benchmark_checks(records: Iterable[Mapping[str, Any]], again: str) -> list[dict[str, Any]]:
    """Return the checks of all benchmarks."""
    return [check.as_dict() for record in records for check in measured.benchmark_checks(record, again)]


class FilterModule:
    """See the module's docstring."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filter by its name."""
        return {"benchmark_checks": benchmark_checks}
