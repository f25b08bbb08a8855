# SPDX-License-Identifier: Apache-2.0
"""Start a prepared job on all its nodes, or submit it to its scheduler. Documentation: library/job_start.py."""

from __future__ import annotations

import base64
import json
import secrets
from pathlib import Path
from typing import Any

from ansible.module_utils.trainyard.cluster.unreachable import reason
from ansible.module_utils.trainyard.findings.adhoc import playbook
from ansible.module_utils.trainyard.findings.findings import UnusableError, counted
from ansible.module_utils.trainyard.job.file import event_receivers
from ansible.module_utils.trainyard.job.placement.process import host_port
from ansible.module_utils.trainyard.job.plan import witness
from ansible.module_utils.trainyard.job.plan.plan import node_plans
from ansible.module_utils.trainyard.job.run import leader
from ansible.module_utils.trainyard.job.schedulers.plan_shape import TO_START
from ansible.module_utils.trainyard_controller import interrupts
from ansible.module_utils.trainyard_controller.action_plugin import OnceForAll
from ansible.module_utils.trainyard_controller.fan_out import Answer, FanOut
from ansible.module_utils.trainyard_controller.inventory_options import inventory_given
from ansible.module_utils.trainyard_controller.run_folder import StoppedError, note_submitted, starting
from ansible.module_utils.trainyard_controller.saved_state import read_plan
from ansible.module_utils.trainyard_controller.scheduler_clients import external_job


class ActionModule(OnceForAll):
    def answer(self, given: dict[str, Any]) -> dict[str, Any]:
        run_dir = Path(given["run_dir"])
        plan = read_plan(run_dir, TO_START)
        if interrupts.noted():
            return {"job_id": plan["job_id"], "not_started": {}, "interrupted": True}
        start = self._submit if "engine" in plan else self._start
        try:
            with starting(run_dir):
                return {"job_id": plan["job_id"], **start(plan, run_dir, given)}
        except StoppedError:
            stopped = "was stopped (playbooks/stop.yml) before anything of it was started."
            raise UnusableError(f"Job {plan['job_id']} {stopped}") from None

    def _start(self, plan: dict[str, Any], run_dir: Path, given: dict[str, Any]) -> dict[str, Any]:
        """Have each node start its part. Secrets go through standard input alone."""
        nodes, spares, head = plan["nodes"], len(plan["spares"]), plan["head"]
        standing_by = f", {counted(spares, 'spare')}" if spares else ""
        standing_by += f", witness {witness.host(plan)}" if witness.host(plan) else ""
        self._display.display(
            f"Job {plan['job_id']}: {counted(plan['world_size'], 'rank')} on {counted(len(nodes), 'node')} "
            f"({plan['launcher']}){standing_by}, rendezvous on {head['host']} "
            f"{host_port(head['address'], head['port'])}"
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
            # Only the host that leads the job sends events.
            private = base64.b64encode(json.dumps(events).encode()).decode()
            for host in leader.hosts(plan):
                own[host]["secret_files"] = {**shared["secret_files"], "events.json": private}
        if "witness" in plan:
            # It runs nothing of the job, so it gets none of its files and secrets.
            own[witness.host(plan)] |= {"files": [], "source_archive": "", "secret_env": {}, "secret_files": {}}
        nodes = self.fan_out()
        answers = nodes.ask("start", own, shared, limit_s=180)
        not_started = _not_started(plan, nodes, answers)
        if not given["wait"] and not not_started:
            self._show_next("Started", plan["job_id"])
        return {"changed": not given.get("record"), "not_started": not_started}

    def _submit(self, plan: dict[str, Any], run_dir: Path, given: dict[str, Any]) -> dict[str, Any]:
        """Submit the job to its scheduler, and record the scheduler's name for it."""
        engine = plan["engine"]
        self._display.display(
            f"Job {plan['job_id']}: {counted(plan['world_size'], 'rank')} on {counted(engine['nodes'], 'node')} "
            f"({engine['kind']}, {engine['starts']}), submitted from {engine['submit_host']}"
        )
        if engine["settings"].get("renamed"):
            self._display.display(engine["settings"]["renamed"])
        client = external_job(plan, run_dir.parent, self.fan_out().ask)
        answer = client.submit(given.get("secret_env") or {}, given.get("secret_files") or {})
        if "engine_id" not in answer:
            raise UnusableError(reason(answer))
        note_submitted(run_dir, answer["engine_id"])
        if not given["wait"]:
            self._show_next(f"Submitted as {answer['engine_id']}", plan["job_id"])
        return {"changed": True, "not_started": {}}

    def _show_next(self, done: str, job_id: str) -> None:
        """Show the commands for a job that nobody waits for."""
        lines = [
            f"  {name:8} {playbook(f'playbooks/{name}.yml', inventory_given(), {'job_id': job_id})}"
            for name in ("watch", "status", "stop")
        ]
        self._display.display("\n".join([f"{done}; not waiting for its end (job_wait: false).", *lines]))


def _not_started(plan: dict[str, Any], nodes: FanOut, answers: dict[str, Answer]) -> dict[str, Answer]:
    """Return the answers of hosts that have not started their part, without those whose answer was lost on its way."""
    silent = {host: answer for host, answer in answers.items() if "known" not in answer}
    for host in silent:
        nodes.forget(host)
    job = {"job_id": plan["job_id"], "job_dir": plan["job_dir"]}
    again = [host for host, answer in silent.items() if not answer.get("taken")]
    states = nodes.ask("state", dict.fromkeys(again, job)) if again else {}
    # A short job may have ended since; a node that could not start its part has no record of a monitor.
    return {host: answer for host, answer in silent.items() if not states.get(host, {}).get("monitor")}
