# SPDX-License-Identifier: Apache-2.0
"""Start a job that is prepared on all its nodes, or hand it to its scheduler. Documentation: library/job_start.py."""

from __future__ import annotations

import base64
import json
import secrets
from pathlib import Path
from typing import Any

from ansible.module_utils.trainyard.cluster.unreachable import reason
from ansible.module_utils.trainyard.findings.adhoc import playbook
from ansible.module_utils.trainyard.findings.findings import counted
from ansible.module_utils.trainyard.job.file import event_receivers
from ansible.module_utils.trainyard.job.placement.process import host_port
from ansible.module_utils.trainyard.job.plan.plan import node_plans
from ansible.module_utils.trainyard_controller import interrupts
from ansible.module_utils.trainyard_controller.fan_out import FanOut
from ansible.module_utils.trainyard_controller.inventory_options import inventory_given
from ansible.module_utils.trainyard_controller.run_folder import StoppedError, note_submitted, starting
from ansible.module_utils.trainyard_controller.scheduler_clients import external_job
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

display = Display()


class ActionModule(ActionBase):
    """Send each node its part of the plan; secrets go through standard input alone."""

    BYPASS_HOST_LOOP = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return `not_started`: what nodes said that could not start their part, by host.

        Where somebody interrupted it before any node was visited, it is `interrupted`.
        """
        result: dict[str, Any] = super().run(tmp, task_vars)
        run_dir = Path(self._task.args["run_dir"])
        plan = json.loads((run_dir / "plan.json").read_text())
        if interrupts.noted():
            return {**result, "job_id": plan["job_id"], "not_started": {}, "interrupted": True}
        start = self._hand_over if "engine" in plan else self._start
        try:
            with starting(run_dir):
                return {**result, **start(plan, run_dir, FanOut(self, task_vars or {}))}
        except StoppedError:
            text = f"Job {plan['job_id']} was stopped (playbooks/stop.yml) before anything of it was started."
            return {**result, "failed": True, "msg": text}

    def _start(self, plan: dict[str, Any], run_dir: Path, visited: FanOut) -> dict[str, Any]:
        """Have each node start its part."""
        given = self._task.args
        nodes, spares = plan["nodes"], len(plan["spares"])
        standing_by = f", {counted(spares, 'spare')}" if spares else ""
        display.display(
            f"Job {plan['job_id']}: {counted(plan['world_size'], 'rank')} on {counted(len(nodes), 'node')} "
            f"({plan['launcher']}){standing_by}, rendezvous on {plan['head']['host']} "
            f"{host_port(plan['head']['address'], plan['head']['port'])}"
        )
        shared = {
            "files": plan["files"],
            "source_archive": base64.b64encode((run_dir / "source.tar.gz").read_bytes()).decode(),
            "user": given["user"],
            "secret_env": given.get("secret_env") or {},
            "secret_files": given.get("secret_files") or {},
            # Token that authenticates the monitors.
            "token": secrets.token_urlsafe(30),
        }
        own: dict[str, dict[str, Any]] = {host: {"node_plan": own_plan} for host, own_plan in node_plans(plan).items()}
        events = event_receivers.settings(given.get("events") or {})
        if events:
            # The head alone knows whom to tell, and how.
            private = base64.b64encode(json.dumps(events).encode()).decode()
            own[plan["head"]["host"]]["secret_files"] = {**shared["secret_files"], "events.json": private}
        answers = visited.ask("start", own, shared, limit_s=180)
        not_started = {host: answer for host, answer in answers.items() if "known" not in answer}
        if not given["wait"] and not not_started:
            self._tell_later("Started", plan["job_id"])
        return {"changed": not given.get("record"), "job_id": plan["job_id"], "not_started": not_started}

    def _hand_over(self, plan: dict[str, Any], run_dir: Path, nodes: FanOut) -> dict[str, Any]:
        """Hand the job to its scheduler, and note what that calls it."""
        engine = plan["engine"]
        display.display(
            f"Job {plan['job_id']}: {counted(plan['world_size'], 'rank')} on {counted(engine['nodes'], 'node')} "
            f"({engine['kind']}, {engine['starts']}), submitted from {engine['submit_host']}"
        )
        if engine["settings"].get("renamed"):
            display.display(engine["settings"]["renamed"])
        given = self._task.args
        client = external_job(plan, run_dir.parent, nodes.ask)
        answer = client.submit(run_dir, given.get("secret_env") or {}, given.get("secret_files") or {})
        if "engine_id" not in answer:
            return {"failed": True, "msg": reason(answer)}
        note_submitted(run_dir, answer["engine_id"])
        if not self._task.args["wait"]:
            self._tell_later(f"Submitted as {answer['engine_id']}", plan["job_id"])
        return {"changed": True, "job_id": plan["job_id"], "not_started": {}}

    def _tell_later(self, done: str, job_id: str) -> None:
        lines = [
            f"  {book:8} {playbook(f'playbooks/{book}.yml', inventory_given(), {'job_id': job_id})}"
            for book in ("watch", "status", "stop")
        ]
        display.display("\n".join([f"{done}; not waiting for its end (job_wait: false).", *lines]))
