# SPDX-License-Identifier: Apache-2.0
"""Compare what all nodes have. Documentation: library/verify_drift.py."""

from __future__ import annotations

from typing import Any

from ansible.module_utils.trainyard.verify import drift
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """Check all nodes together, in this process."""

    BYPASS_HOST_LOOP = True
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return `checks` and `groups`."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        given = self._task.args
        checks, groups = drift.verify(
            given["results"],
            groups=given["groups"],
            ignore=given["ignore"],
            max_clock_offset=float(given["max_clock_offset"]),
            inventory=given["inventory"],
        )
        return {**result, "changed": False, "checks": [check.as_dict() for check in checks], "groups": groups}
