# SPDX-License-Identifier: Apache-2.0
"""Bring one node's logs of a job to the controller, in one call. Documentation: library/job_collect.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.module_utils.trainyard_node.run_folder import write_logs
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """Ask the node, write its logs into the run's folder, and return the rest."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return what the module returned, without the logs, and their names as `files`."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        del tmp
        arguments = dict(self._task.args)
        run_dir = Path(arguments.pop("run_dir"))
        stop, keep = arguments.pop("stop", False), arguments.pop("keep", False)
        module = "job_process" if stop else "job_process_info"
        if stop:
            arguments["state"] = "stopped"
        result.update(
            self._execute_module(module_name=module, module_args={**arguments, "logs": True}, task_vars=task_vars)
        )
        logs = result.pop("logs", {})
        result["files"] = sorted(logs)
        if not self._task.check_mode:
            write_logs(run_dir, logs, keep)
        return result
