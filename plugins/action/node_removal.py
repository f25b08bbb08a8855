# SPDX-License-Identifier: Apache-2.0
"""Take trainyard off all hosts. Documentation: library/node_removal.py."""

from __future__ import annotations

from typing import Any

from ansible.module_utils.trainyard_controller.action_plugin import Documented
from ansible.module_utils.trainyard_controller.removing import take_off


class ActionModule(Documented):
    def answer(self, given: dict[str, Any]) -> dict[str, Any]:
        text, changed = take_off(self, given["hosts"], data=given["data"], check=self._task.check_mode)
        self._display.display(text)
        return {"text": text, "changed": changed}
