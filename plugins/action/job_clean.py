# SPDX-License-Identifier: Apache-2.0
"""Remove the choice of job_clean_plan, and record it in runs/. Documentation: library/job_clean.py."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from ansible.module_utils.trainyard.findings.findings import FindingsError
from ansible.module_utils.trainyard_controller.action_plugin import OnceForAll
from ansible.module_utils.trainyard_controller.cleaning import note, record_ends, remove, remove_objects, unrecorded


class ActionModule(OnceForAll):
    def answer(self, given: dict[str, Any]) -> dict[str, Any]:
        chosen = given["chosen"]
        if not self._task.check_mode:
            self._remove(given, chosen, Path(given["runs_dir"]))
        self._display.display(chosen["text"])
        return {"changed": any(chosen[name] for name in ("remove", "objects", "records"))}

    def _remove(self, given: dict[str, Any], chosen: dict[str, Any], runs_dir: Path) -> None:
        """Complete open records of jobs, then remove their folders. Raises FindingsError."""
        ask = self.fan_out().ask
        names = unrecorded(chosen["remove"], chosen["objects"], chosen["records"], runs_dir)
        lines, findings = record_ends(names, runs_dir, ask, int(given["log_limit"]), Path(given["excluded_file"]))
        if lines:
            self._display.display("\n".join(lines))
        if findings:
            raise FindingsError(findings, "{count} {findings}: nothing was removed.")
        answers = {**remove(chosen["remove"], ask), **remove_objects(chosen["objects"], runs_dir)}
        findings = note(runs_dir, answers, chosen["records"], time.time())
        if findings:
            raise FindingsError(findings, "{count} {findings}: not everything could be removed.")
