# SPDX-License-Identifier: Apache-2.0
"""Record what was done in a run of a drill, when it has ended. Documentation: library/drill_record.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.module_utils.trainyard.job.drill import result
from ansible.module_utils.trainyard_controller import drilling, interrupts
from ansible.module_utils.trainyard_controller.action_plugin import OnceForAll
from ansible.module_utils.trainyard_controller.saved_state import read_plan


class ActionModule(OnceForAll):
    def answer(self, given: dict[str, Any]) -> dict[str, Any]:
        run_dir, run, drill = Path(given["run_dir"]), given["run"], drilling.of_record(given["drill"])
        plan = read_plan(run_dir)
        newer = drilling.elsewhere(plan, given["user"], self.fan_out().ask) if run == "stopped" else {}
        watched = {"killed": given["watched"].get("killed"), "why": given["watched"].get("why", "")}
        record = {"run": run, "job_id": run_dir.name, "elsewhere": newer, **watched}
        findings, interrupted = [], interrupts.noted()
        if run == "undisturbed" and not interrupted:
            findings = result.unusable(drilling.read_run(run_dir.parent, record), drill)
        listed = [finding.as_dict() for finding in findings]
        return {"record": record, "findings": listed, "over": bool(findings) or interrupted}
