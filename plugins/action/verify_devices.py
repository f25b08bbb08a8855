# SPDX-License-Identifier: Apache-2.0
"""Check the devices of all nodes. Documentation: library/verify_devices.py."""

from __future__ import annotations

from typing import Any

from ansible.module_utils.trainyard.verify import devices
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """Check one reading of all nodes, or what grew between two, in this process."""

    BYPASS_HOST_LOOP = True
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return `checks`."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        given = self._task.args
        checks = devices.verify(
            given["results"],
            given.get("before"),
            groups=given.get("groups") or {},
            allowed={name: int(growth) for name, growth in (given.get("allowed_growth") or {}).items()},
            xids=[int(number) for number in given.get("xids") or ()],
            inventory=given["inventory"],
        )
        return {**result, "changed": False, "checks": [check.as_dict() for check in checks]}
