# SPDX-License-Identifier: Apache-2.0
"""Filter plugin duration: a number of seconds as hours, minutes and seconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible.module_utils.trainyard.job.progress import clock

DOCUMENTATION = r"""
name: duration
short_description: Seconds as hours, minutes and seconds
description:
  - So that a person can read how long something took.
options:
  _input:
    description: Seconds.
    type: float
    required: true
author: trainyard
"""

EXAMPLES = r"""
- name: Say how long it took
  ansible.builtin.debug:
    msg: "{{ 75.2 | duration }}"
"""

RETURN = r"""
_value:
  description: The text.
  type: str
  sample: "0:01:15"
"""


def duration(seconds: float) -> str:
    """Return h:mm:ss."""
    return clock(seconds)


class FilterModule:
    """See the module's docstring."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filter by its name."""
        return {"duration": duration}
