# SPDX-License-Identifier: Apache-2.0
"""Start a job that is prepared on all its nodes. Documentation: library/job_start.py."""

from __future__ import annotations

import base64
import json
import secrets
from pathlib import Path
from typing import Any

from ansible.module_utils.trainyard.findings import counted
from ansible.module_utils.trainyard.plan import parts
from ansible.module_utils.trainyard.process import host_port
from ansible.module_utils.trainyard_controller.fan_out import FanOut
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

display = Display()


class ActionModule(ActionBase):
    """Send each node its part of the plan; secrets go through standard input alone."""

    BYPASS_HOST_LOOP = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return `not_started`: what nodes said that could not start their part, by host."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        given = self._task.args
        run_dir, record = Path(given["run_dir"]), bool(given.get("record"))
        plan = json.loads((run_dir / "plan.json").read_text())
        nodes = plan["nodes"]
        display.display(
            f"Job {plan['job_id']}: {counted(plan['world_size'], 'rank')} on {counted(len(nodes), 'node')} "
            f"({plan['launcher']}), rendezvous on {plan['head']['host']} "
            f"{host_port(plan['head']['address'], plan['head']['port'])}"
        )
        shared = {
            "files": plan["files"],
            "source_archive": base64.b64encode((run_dir / "source.tar.gz").read_bytes()).decode(),
            "user": given["user"],
            "secret_env": given.get("secret_env") or {},
            "secret_files": given.get("secret_files") or {},
            # By which the job's monitors know each other.
            "token": secrets.token_urlsafe(30),
        }
        own = {host: {"slice": part} for host, part in parts(plan).items()}
        answers = FanOut(self, task_vars or {}).ask("start", own, shared, limit_s=180)
        not_started = {host: answer for host, answer in answers.items() if "known" not in answer}
        if not given["wait"] and not not_started:
            display.display(self._later(plan["job_id"], given["inventory"]))
        return {**result, "changed": not record, "job_id": plan["job_id"], "not_started": not_started}

    @staticmethod
    def _later(job_id: str, inventory: str) -> str:
        lines = [
            f"  {book:8} ansible-playbook playbooks/{book}.yml -i {inventory} -e job_id={job_id}"
            for book in ("watch", "status", "stop")
        ]
        return "\n".join(["Started; not waiting for its end (job_wait: false).", *lines])
