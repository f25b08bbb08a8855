# SPDX-License-Identifier: Apache-2.0
"""Filter plugin findings_text: findings of all hosts as the text that a person reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ansible.module_utils.trainyard.record.findings import Finding, render

DOCUMENTATION = r"""
name: findings_text
short_description: Findings of all hosts as one text
description:
  - Each fault once, with all the hosts that have it.
options:
  _input:
    description: Findings, each with C(host), C(check), C(found), C(expected) and C(action).
    type: list
    elements: dict
    required: true
  headline:
    description: The first line, with C({count}) and C({findings}) in place of their number and the word.
    type: str
    required: true
author: trainyard
"""

EXAMPLES = r"""
- name: Stop when anything was found on any host
  ansible.builtin.assert:
    that: found | length == 0
    fail_msg: "{{ found | findings_text('{count} {findings} stop this.') }}"
  run_once: true
"""

RETURN = r"""
_value:
  description: The text.
  type: str
"""


def findings_text(found: Iterable[Mapping[str, str]], headline: str) -> str:
    """Return the text of findings."""
    return render([Finding.from_dict(each) for each in found], headline)


class FilterModule:
    """See the module's docstring."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filter by its name."""
        return {"findings_text": findings_text}
