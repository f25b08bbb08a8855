# SPDX-License-Identifier: Apache-2.0
"""Check the devices of all nodes. Documentation: library/verify_devices.py."""

from __future__ import annotations

from typing import Any

from ansible.module_utils.trainyard.verify import devices
from ansible.module_utils.trainyard_controller.action_plugin import OnceForAll


class ActionModule(OnceForAll):
    def answer(self, given: dict[str, Any]) -> dict[str, Any]:
        checks = devices.verify(
            given["results"],
            given.get("before"),
            groups=given.get("groups") or {},
            allowed={name: int(growth) for name, growth in (given.get("allowed_growth") or {}).items()},
            xids=[int(number) for number in given.get("xids") or ()],
            inventory=given["inventory"],
        )
        return {"checks": [check.as_dict() for check in checks]}
