# SPDX-License-Identifier: Apache-2.0
"""Run Ansible's get_url, so that its host can tell how far it is. Documentation: library/."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the module's result."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        given = self._task.args
        # get_url writes its own file there. It names an option that is missing.
        folder = str(given.get("dest", "")).rpartition("/")[0]
        given = {**given, **({} if self._task.check_mode else {"tmp_dest": folder})}
        return {**result, **self._execute_module("ansible.builtin.get_url", given, task_vars=task_vars)}
