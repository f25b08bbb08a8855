# SPDX-License-Identifier: Apache-2.0
"""Run the module python_environment, and ask its host meanwhile how far it is. Documentation: library/."""

from __future__ import annotations

import contextlib
from typing import Any

from ansible.module_utils.trainyard_controller import task_progress
from ansible.module_utils.trainyard_controller.fan_out import FanOut
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the module's result."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        path = {"path": str(self._task.args.get("path", ""))}
        shown: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
        if not self._task.check_mode and not self._task.delegate_to:
            shown = task_progress.asked(FanOut(self, variables), variables["inventory_hostname"], "installing", path)
        with shown:
            return {**result, **self._execute_module(task_vars=task_vars)}
