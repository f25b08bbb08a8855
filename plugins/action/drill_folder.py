# SPDX-License-Identifier: Apache-2.0
"""Make or remove the folder of a drill's checkpoints. Documentation: library/drill_folder.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.module_utils.trainyard.findings.findings import FindingsError
from ansible.module_utils.trainyard_controller import drilling
from ansible.module_utils.trainyard_controller.action_plugin import OnceForAll
from ansible.module_utils.trainyard_controller.saved_state import read_plan


class ActionModule(OnceForAll):
    def answer(self, given: dict[str, Any]) -> dict[str, Any]:
        plan = read_plan(Path(given["run_dir"]))
        path, user, ask = given["path"], given["user"], self.fan_out().ask
        if given["state"] == "present":
            findings = drilling.make_folder(plan, path, user, ask)
            if findings:
                raise FindingsError(findings, "{count} {findings}: the drill has no place for checkpoints.")
            return {}
        left = drilling.remove_folder(plan, path, user, ask)
        return {"warnings": [f"checkpoints of the drill remain: {'; '.join(left)}"]} if left else {}
