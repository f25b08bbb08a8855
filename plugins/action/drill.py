# SPDX-License-Identifier: Apache-2.0
"""Run a job several times, to find what it survives or where it fails. Documentation: library/drill.py."""

from __future__ import annotations

import secrets
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ansible.module_utils.trainyard.base.findings import FindingsError, failure, render
from ansible.module_utils.trainyard.job.drill import bisect, drill_result, goal
from ansible.module_utils.trainyard.job.drill.drill_settings import RUNS, changes, changes_on_part, on_parts, read
from ansible.module_utils.trainyard.report import bisect_text
from ansible.module_utils.trainyard.report.drill_page import text
from ansible.module_utils.trainyard_controller.ansible import interrupts
from ansible.module_utils.trainyard_controller.ansible.action_plugin import DOCUMENTED, Steps
from ansible.module_utils.trainyard_controller.job import drilling
from ansible.module_utils.trainyard_controller.runs.inventory_options import inventory_given
from ansible.module_utils.trainyard_controller.runs.saved_state import read_plan

Variables = dict[str, Any]


class ActionModule(Steps):
    def plan(self, job: Variables, settings: Variables) -> dict[str, Any]:
        drill, findings = read(job, settings, _new_id())
        if drill is None:
            return {"findings": [finding.as_dict() for finding in findings], "drill": {}, "runs": []}
        runs = [{"run": run, "changes": changes(drill, job, run)} for run in RUNS]
        return {"findings": [], "drill": asdict(drill), "runs": runs}

    def folder(self, run_dir: str, path: str, state: str, user: str) -> dict[str, Any]:
        plan, ask = read_plan(Path(run_dir)), self.fan_out().ask
        if state == "present":
            findings = drilling.make_folder(plan, path, user, ask)
            if findings:
                raise FindingsError(findings, "{count} {findings}: the drill has no place for checkpoints.")
            return {}
        left = drilling.remove_folder(plan, path, user, ask)
        return {"warnings": [f"checkpoints of the drill remain: {'; '.join(left)}"]} if left else {}

    def watch(self, run_dir: str, run: str, drill: Variables) -> dict[str, Any]:
        plan = read_plan(Path(run_dir))
        goal_of_run = goal.of_run(run, drilling.of_record(drill))
        return drilling.watch(plan, goal_of_run, self.fan_out().ask, self._display.display, interrupts.noted)

    def record(self, run_dir: str, run: str, drill: Variables, user: str, watched: Variables) -> dict[str, Any]:
        folder, settings = Path(run_dir), drilling.of_record(drill)
        plan = read_plan(folder)
        newer = drilling.elsewhere(plan, user, self.fan_out().ask) if run == "stopped" else {}
        record = {"run": run, "job_id": folder.name, "elsewhere": newer}
        record |= {"killed": watched.get("killed"), "why": watched.get("why", "")}
        findings, interrupted = [], interrupts.noted()
        if run == "undisturbed" and not interrupted:
            findings = drill_result.unusable(drilling.read_run(folder.parent, record), settings)
        listed = [finding.as_dict() for finding in findings]
        return {"record": record, "findings": listed, "over": bool(findings) or interrupted}

    def report(self, drill: Variables, runs: list[dict[str, Any]], runs_dir: str) -> dict[str, Any]:
        found = drilling.report(drilling.of_record(drill), runs, Path(runs_dir))
        shown = text(found, found["page"], found["command"])
        result = {"state": found["state"], "headline": found["headline"]}
        if found["state"] == "fail":
            return {**result, "failed": True, "msg": shown}
        self._display.display(shown)
        return result

    def bisect(
        self,
        job: Variables,
        settings: Variables,
        hosts: list[str],
        jobs: list[dict[str, Any]],
        id: str = DOCUMENTED,
        report: bool = DOCUMENTED,
    ) -> dict[str, Any]:
        drill_id = id or _new_id()
        drill, findings = on_parts(job, settings, hosts, drill_id)
        if findings:
            raise FindingsError(findings, "{count} {findings}: no run can find the nodes, and nothing was started.")
        answer: dict[str, Any] = {"runs": [], "id": drill_id, "reported": report}
        if interrupts.noted():
            return answer
        runs, last = drilling.on_parts(jobs), jobs[-1]["round"] if jobs else 0
        least = min(settings["bisect_min_nodes"] or job["job_min_nodes"] or 1, len(hosts))
        found = bisect.decide(hosts, runs, least, min(settings["bisect_multiple"], len(hosts)))
        if report:
            state, headline, finding = bisect_text.finding(found, runs, last, inventory_given(), jobs[-1]["refused"])
            answer |= {"state": state, "end": found.end, "hosts": found.hosts, "unclear": found.unclear}
            drilling.record_search(jobs, runs, {**answer, "finding": finding.as_dict()})
            if state == "fail":
                return {**answer, **failure([finding], headline)}
            self._display.display(render([finding], headline))
        elif jobs:
            self._display.display(bisect_text.line(last, runs[-sum(job["round"] == last for job in jobs) :], hosts))
        for number, names in enumerate(found.runs, len(jobs)):
            folder = drill.instead and f"{drill.instead}/run{number}"
            changed = changes_on_part(drill, job, f"run{number}")
            answer["runs"].append({"hosts": names, "changes": changed, "folder": folder})
        return answer


def _new_id() -> str:
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
