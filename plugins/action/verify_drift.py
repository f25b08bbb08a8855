# SPDX-License-Identifier: Apache-2.0
"""Compare the facts of all nodes. Documentation: library/verify_drift.py."""

from __future__ import annotations

from typing import Any

from ansible.module_utils.trainyard.verify import drift
from ansible.module_utils.trainyard_controller.action_plugin import OnceForAll


class ActionModule(OnceForAll):
    def answer(self, given: dict[str, Any]) -> dict[str, Any]:
        checks, groups = drift.verify(
            given["results"],
            groups=given["groups"],
            ignore=given["ignore"],
            max_clock_offset=float(given["max_clock_offset"]),
            inventory=given["inventory"],
        )
        return {"checks": [check.as_dict() for check in checks], "groups": groups}
