# SPDX-License-Identifier: Apache-2.0
"""Record on all hosts what they were before trainyard. Documentation: library/node_record.py."""

from __future__ import annotations

from typing import Any

from ansible.module_utils.trainyard_controller.action_plugin import Documented
from ansible.module_utils.trainyard_controller.removing import keep


class ActionModule(Documented):
    def answer(self, given: dict[str, Any]) -> dict[str, Any]:
        if not self._task.check_mode:
            keep(self, given["hosts"], begin=given["state"] == "open")
        return {}
