# SPDX-License-Identifier: Apache-2.0
"""Filter plugin dataset_plan: check a list of data sets and fill in what it leaves open."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible.module_utils.trainyard.software import datasets

DOCUMENTATION = r"""
name: dataset_plan
short_description: Check a list of data sets before anything is touched
description:
  - Needs no machine, and costs little enough to be asked wherever its answer is used.
options:
  _input:
    description: The data sets, as the role dataset describes them.
    type: list
    elements: dict
    required: true
author: trainyard
"""

EXAMPLES = r"""
- name: Show what would be placed
  ansible.builtin.debug:
    msg: "{{ [{'name': 'digits'}] | dataset_plan }}"
"""

RETURN = r"""
_value:
  description: C(fault) says all that is wrong, empty for nothing; C(sets) are the data sets with every key.
  type: dict
"""


def dataset_plan(sets: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the fault and the data sets."""
    planned, findings = datasets.plan(sets)
    return {"fault": f"dataset_sets cannot be used: {'; '.join(findings)}" if findings else "", "sets": planned}


class FilterModule:
    """See the module's docstring."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filter by its name."""
        return {"dataset_plan": dataset_plan}
