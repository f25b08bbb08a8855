# SPDX-License-Identifier: Apache-2.0
"""Action plugin cluster_baseline: run the module of that name and show what nodes cannot be given.

The module's own warnings would be lost with a standard output that leaves out tasks that went well, and a limit that
silently is not there is found by a job that crashes on it.
"""
from __future__ import annotations

from typing import Any

from ansible import constants as C
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """Run the module and print its exceptions."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the module's result."""
        super().run(tmp, task_vars)
        result: dict[str, Any] = self._execute_module(module_args=self._task.args, task_vars=task_vars)
        for exception in result.get("exceptions", []):
            # Not display.warning(): in a worker that ends up among the module's warnings.
            self._display.display(f"Not as asked: {exception}", color=C.COLOR_WARN)
        return result
