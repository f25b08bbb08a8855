# SPDX-License-Identifier: Apache-2.0
"""Run the module python_environment, and ask its host meanwhile how far it is. Documentation: library/."""

from __future__ import annotations

from typing import Any

from ansible.module_utils.trainyard_controller import task_progress
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the module's result."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        with task_progress.asked(self, task_vars or {}, str(self._task.args.get("path", ""))):
            return {**result, **self._execute_module(task_vars=task_vars)}
