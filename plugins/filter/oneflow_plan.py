# SPDX-License-Identifier: Apache-2.0
"""Filter plugin oneflow_plan: check a wanted OneFlow against the releases there are, and say what to install."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible.module_utils.trainyard.software import oneflow

DOCUMENTATION = r"""
name: oneflow_plan
short_description: Check a wanted OneFlow before anything is touched
description:
  - Needs no machine, and costs little enough to be asked wherever its answer is used.
options:
  _input:
    description: >-
      What is wanted, by the names version, wheel_url, wheel_sha256, packages, python_min and python_max; all but
      version may be left out.
    type: dict
    required: true
author: trainyard
"""

EXAMPLES = r"""
- name: Show what is installed for it
  ansible.builtin.debug:
    msg: "{{ {'version': '0.9.0'} | oneflow_plan }}"
"""

RETURN = r"""
_value:
  description:
    - C(fault) says all that is wrong, empty for nothing; beside that pins, wheels,
      python_min and python_max.
  type: dict
"""


def oneflow_plan(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fault, or what to install with an empty fault."""
    asked = oneflow.Wanted(**{key: value if key == "packages" else str(value) for key, value in wanted.items()})
    fault = " ".join(oneflow.problems(asked))
    return {"fault": fault} if fault else {"fault": "", **oneflow.plan(asked)}


class FilterModule:
    """See the module's docstring."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filter by its name."""
        return {"oneflow_plan": oneflow_plan}
