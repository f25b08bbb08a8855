# SPDX-License-Identifier: Apache-2.0
"""Lookup plugin job_slice: this node's own part of the plan that localhost has.

The same as `hostvars['localhost']['__job_plan']['slices'][inventory_hostname]`, except that the slices of all nodes are
not made templates one by one for each node, which costs the square of their number: with 2,000 nodes that was a third
of the time of the process that checks one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.lookup import LookupBase

DOCUMENTATION = r"""
name: job_slice
short_description: This node's own part of the plan that localhost has
description:
  - Returns what M(job_plan) planned for this node. Takes no terms.
  - Fails where localhost has no plan, or the plan has no such node.
author: trainyard
"""


class LookupModule(LookupBase):  # type: ignore[misc]
    """See the module's docstring."""

    def run(self, terms: Sequence[str], variables: dict[str, Any] | None = None, **_: Any) -> list[dict[str, Any]]:
        """Return the slice, as the only one of a list."""
        if terms or variables is None:
            raise AnsibleError(f"job_slice was given {list(terms)}; expected: no terms, and a task of a play")
        return [variables["hostvars"].raw_get("localhost")["__job_plan"]["slices"][variables["inventory_hostname"]]]
