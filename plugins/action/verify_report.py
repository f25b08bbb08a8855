# SPDX-License-Identifier: Apache-2.0
"""Write the report of a verification, and say how it ended. Documentation: library/verify_report.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.module_utils.trainyard_controller.verify_reporting import report
from ansible.plugins.action import ActionBase
from ansible.release import __version__


class ActionModule(ActionBase):
    """All of it in this process: no machine is touched."""

    BYPASS_HOST_LOOP = True
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return `state`, `exit_code`, `text`, `first` and `files`."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        given = dict(self._task.args)
        run_dir, check = Path(given.pop("run_dir")), self._task.check_mode
        return {**result, **report(run_dir, given, ansible=__version__, check=check)}
