# SPDX-License-Identifier: Apache-2.0
"""Filter plugin job_hosts: which hosts take part in the jobs of a proof."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ansible.module_utils.trainyard.verify.phases import job_hosts as choose_hosts

DOCUMENTATION = r"""
name: job_hosts
short_description: Which hosts take part in the jobs of which phase
description:
  - A phase that is not wanted or does not apply gets none.
options:
  _input:
    description: Hosts that jobs can use, in the order of the inventory.
    type: list
    elements: str
    required: true
  answers:
    description: What M(verify_read) returned as C(answers).
    type: dict
    required: true
  phases:
    description: The phases that are wanted.
    type: list
    elements: str
    required: true
  frameworks:
    description: C(trainyard_frameworks).
    type: list
    elements: str
    required: true
  pair_venv:
    description: Whether an environment for pairs was named.
    type: bool
    required: true
author: trainyard
"""

EXAMPLES = r"""
- name: Show them
  ansible.builtin.debug:
    msg: "{{ verify_usable | job_hosts(facts.answers, ['bandwidth'], ['pytorch'], pair_venv=false) }}"
"""

RETURN = r"""
_value:
  description:
    - C(collectives) by framework, C(bandwidth), C(inside) (nodes with several GPUs), C(pairs) or why there are none
      (C(no_pairs)), and the C(backend) over all of them.
  type: dict
"""


def job_hosts(
    usable: Sequence[str],
    answers: Mapping[str, Mapping[str, Any]],
    phases: Iterable[str],
    frameworks: Iterable[str],
    pair_venv: bool,
) -> dict[str, Any]:
    """Return the hosts of each phase's jobs."""
    return choose_hosts(list(usable), answers, list(phases), list(frameworks), pair_venv=bool(pair_venv))


class FilterModule:
    """See the module's docstring."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filter by its name."""
        return {"job_hosts": job_hosts}
