# SPDX-License-Identifier: Apache-2.0
"""Filter plugin mindspore_plan: check a wanted MindSpore against the releases there are, and say what to install."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible.module_utils.trainyard.software import mindspore

DOCUMENTATION = r"""
name: mindspore_plan
short_description: Check a wanted MindSpore before anything is touched
description:
  - Needs no machine, and costs little enough to be asked wherever its answer is used.
options:
  _input:
    description: >-
      What is wanted, by the names version, device, cuda, wheel_url, wheel_sha256, packages, python_min and python_max;
      all but version may be left out.
    type: dict
    required: true
author: trainyard
"""

EXAMPLES = r"""
- name: Show what is installed for it
  ansible.builtin.debug:
    msg: "{{ {'version': '2.10.0'} | mindspore_plan }}"
"""

RETURN = r"""
_value:
  description:
    - C(fault) says all that is wrong, empty for nothing; beside that distribution, pin,
      wheels, python_min, python_max, target, driver (its least version) and needs, for a GPU build in words.
  type: dict
"""


def mindspore_plan(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fault, or what to install with an empty fault."""
    asked = mindspore.Wanted(**{key: value if key == "packages" else str(value) for key, value in wanted.items()})
    fault = " ".join(mindspore.problems(asked))
    return {"fault": fault} if fault else {"fault": "", **mindspore.plan(asked)}


class FilterModule:
    """See the module's docstring."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filter by its name."""
        return {"mindspore_plan": mindspore_plan}
