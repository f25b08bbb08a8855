# SPDX-License-Identifier: Apache-2.0
"""Find out whether a job can be drilled, and plan the runs. Documentation: library/drill_plan.py."""

from __future__ import annotations

import secrets
import time
from dataclasses import asdict
from typing import Any

from ansible.module_utils.trainyard.job.drill import settings
from ansible.module_utils.trainyard_controller.action_plugin import OnceForAll


class ActionModule(OnceForAll):
    def answer(self, given: dict[str, Any]) -> dict[str, Any]:
        drill_id = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
        drill, findings = settings.read(given["job"], given["settings"], drill_id)
        if drill is None:
            return {"findings": [finding.as_dict() for finding in findings], "drill": {}, "runs": []}
        runs = [{"run": run, "changes": settings.changes(drill, given["job"], run)} for run in settings.RUNS]
        return {"findings": [], "drill": asdict(drill), "runs": runs}
