# SPDX-License-Identifier: Apache-2.0
"""Take the stacks of all ranks of a job that runs. Documentation: library/job_stacks.py."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from ansible.module_utils.trainyard.cluster.unreachable import reason
from ansible.module_utils.trainyard.findings.redaction import safe_text
from ansible.module_utils.trainyard.job.plan import spare_places as spares
from ansible.module_utils.trainyard.job.run.stacks import lines
from ansible.module_utils.trainyard_controller.fan_out import FanOut
from ansible.module_utils.trainyard_controller.run_folder import NotWrittenError, write_whole
from ansible.module_utils.trainyard_node.job.run.stacks import SAMPLES
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

display = Display()


class ActionModule(ActionBase):
    """One visit to each node; the job goes on."""

    BYPASS_HOST_LOOP = True
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return `groups`, where the ranks are, and `file`, where all that was seen stands."""
        result: dict[str, Any] = {**super().run(tmp, task_vars), "changed": False}
        run_dir = Path(self._task.args["run_dir"])
        plan = json.loads((run_dir / "plan.json").read_text())
        if "engine" in plan:
            kind = plan["engine"]["kind"]
            found = f"{plan['job_id']} runs on {kind}, where trainyard has no process of its own on the nodes"
            return {**result, "failed": True, "msg": f"{found}; expected a job with job_scheduler: ssh"}
        looks = max(SAMPLES, int(self._task.args.get("seconds") or 0))
        shared = {"job_id": plan["job_id"], "job_dir": plan["job_dir"], "looks": looks}
        nodes: dict[str, Any] = {host: {} for host in spares.hosts(plan)}
        answers = FanOut(self, task_vars or {}).ask("stacks", nodes, shared, limit_s=60 + 2 * looks)
        found_on = {host: answer["ranks"] for host, answer in answers.items() if "ranks" in answer}
        silent = {host: reason(answer) or "no answer" for host, answer in answers.items() if host not in found_on}
        if not any(found_on.values()):
            why = "; ".join(f"{host}: {text}" for host, text in silent.items())
            none = f"no rank of {plan['job_id']} runs on any node" + (f" that answered ({why})" if why else "")
            return {**result, "failed": True, "msg": f"{none}; expected a job that runs, see playbooks/status.yml"}
        groups = [safe_text(line) for line in lines(found_on, plan["world_size"], silent)]
        file = run_dir / f"stacks-{time.strftime('%Y%m%d-%H%M%S')}.txt"
        texts = [f"==== {host}\n\n{safe_text(answers[host]['text'])}" for host in found_on]
        told = f"Job {plan['job_id']} runs:\n" + "".join(f"  {line}\n" for line in groups)
        if not self._task.check_mode:
            try:
                write_whole(file, "\n".join([told, *texts]))
            except NotWrittenError as error:
                return {**result, **error.failure(run_dir)}
            told += f"  all stacks  {file}"
        display.display(told)
        return {**result, "groups": groups, "file": "" if self._task.check_mode else str(file)}
