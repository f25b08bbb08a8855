# SPDX-License-Identifier: Apache-2.0
"""Ask all nodes of a job, or its scheduler, how it is, and bring its logs. Documentation: library/job_collect.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ansible.module_utils.trainyard.cluster.no_answer import reason
from ansible.module_utils.trainyard.job import run_record, spares
from ansible.module_utils.trainyard_controller.fan_out import FanOut
from ansible.module_utils.trainyard_controller.run_folder import NotWrittenError, note_submitted, write_logs
from ansible.module_utils.trainyard_controller.scheduler_clients import Kubernetes, Slurm, handed
from ansible.module_utils.trainyard_node.job.exits import read_json
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """One visit to each node; with `stop` the job is ended there first."""

    BYPASS_HOST_LOOP = True
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return `answers` of all hosts, without the logs, which stand in the run's folder then."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        run_dir = Path(self._task.args["run_dir"])
        try:
            return self._collect(result, run_dir, task_vars or {})
        except NotWrittenError as error:
            return {**result, "failed": True, "msg": error.text(run_dir)}

    def _collect(self, result: dict[str, Any], run_dir: Path, task_vars: dict[str, Any]) -> dict[str, Any]:
        given, check = self._task.args, self._task.check_mode
        plan = json.loads((run_dir / "plan.json").read_text())
        over = run_record.is_final(run_record.read(read_json(run_dir / "summary.json")))
        nodes = FanOut(self, task_vars)
        if "engine" in plan:
            return {**result, **self._of_scheduler(handed(plan, run_dir.parent, nodes.ask), run_dir, over)}
        shared = {
            "job_id": plan["job_id"],
            "job_dir": plan["job_dir"],
            "stop": bool(given["stop"]),
            "log_limit": int(given["log_limit"]),
            "check": check,
        }
        own: dict[str, Any] = {host: {} for host in spares.hosts(plan)}
        answers = nodes.ask("collect", own, shared, limit_s=300)
        for host, answer in answers.items():
            logs = answer.pop("logs", {})
            if ((answer.get("monitor") or {}).get("end") or {}).get("failure", {}).get("kind") == "replaced":
                # Whose ranks went on elsewhere, under the same names.
                logs = {f"{host}_{name}": content for name, content in logs.items()}
            if not check:
                write_logs(run_dir, logs, keep=over)
        return {**result, "changed": any(answer.get("changed") for answer in answers.values()), "answers": answers}

    def _of_scheduler(self, job: Slurm | Kubernetes, run_dir: Path, over: bool) -> dict[str, Any]:
        """Return `job_state`; a job that is stopped, or can never start, is removed from its cluster.

        A scheduler that does not answer is told of by the report only where the record says how the job ended.
        """
        given, check = self._task.args, self._task.check_mode
        waits, stop = given["asked"] == "end" and not over, given["asked"] == "stop"
        ended = job.end(check=check) if stop else {"changed": False}
        if "changed" not in ended:
            return _failed(ended)
        state = job.state(waits=waits)
        if "state" not in state:
            return {"changed": False, "job_state": state} if over and not stop else _failed(state)
        exits = []
        for answer in job.logs(state, int(given["log_limit"])):
            exits += answer.get("exits", ())
            if not check:
                write_logs(run_dir, answer.get("logs", {}), keep=over)
        changed = ended["changed"]
        if isinstance(job, Kubernetes) and (stop or waits):
            # A job whose pods can never start would hold what those of them have that did.
            whole = stop or bool(state.get("hopeless"))
            ended_there = state["state"] not in ("pending", "running")
            # As over ssh, what is secret goes when the job ends.
            gone = job.remove("" if whole else "Secret") if (whole or ended_there) and not check else {"changed": whole}
            if "changed" not in gone:
                return _failed(gone)
            changed = changed or gone["changed"]
            state = job.after_removal(state) if whole else state
            if "state" not in state:
                return _failed(state)
            if whole and not check:
                note_submitted(run_dir, job.engine["engine_id"], removed=True)
        return {"changed": changed, "job_state": {**state, "exits": exits}}


def _failed(answer: dict[str, Any]) -> dict[str, Any]:
    return {"failed": True, "msg": reason(answer) or "no answer"}
