# SPDX-License-Identifier: Apache-2.0
"""Take the stacks of all ranks of a running job. Documentation: library/job_stacks.py."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from ansible.module_utils.trainyard.cluster.unreachable import reason
from ansible.module_utils.trainyard.findings.adhoc import playbook
from ansible.module_utils.trainyard.findings.findings import UnusableError
from ansible.module_utils.trainyard.findings.redaction import safe_text
from ansible.module_utils.trainyard.job.plan import spare_places as spares
from ansible.module_utils.trainyard.job.run.stacks import lines, rank_count
from ansible.module_utils.trainyard_controller.action_plugin import Documented
from ansible.module_utils.trainyard_controller.inventory_options import inventory_given
from ansible.module_utils.trainyard_controller.run_folder import write_whole
from ansible.module_utils.trainyard_controller.saved_state import read_plan
from ansible.module_utils.trainyard_controller.scheduler_clients import asked_of
from ansible.module_utils.trainyard_node.job.run.stacks import SAMPLES


class ActionModule(Documented):
    def answer(self, given: dict[str, Any]) -> dict[str, Any]:
        run_dir = Path(given["run_dir"])
        plan = read_plan(run_dir)
        if "engine" in plan and not plan["nodes"]:
            kind = plan["engine"]["kind"]
            found = f"{plan['job_id']} is a job of {kind}, and no monitor of trainyard is known on its nodes"
            raise UnusableError(f"{found}; expected a job with job_scheduler: ssh, or one that runs under Slurm")
        samples = max(SAMPLES, given["seconds"])
        shared = {"job_id": plan["job_id"], "job_dir": plan["job_dir"], "looks": samples}
        nodes: dict[str, Any] = {host: {} for host in spares.hosts(plan)}
        answers = asked_of(plan, run_dir, self.fan_out().ask)("stacks", nodes, shared, limit_s=60 + 2 * samples)
        ranks = {host: answer["ranks"] for host, answer in answers.items() if "ranks" in answer}
        silent = {host: reason(answer) or "no answer" for host, answer in answers.items() if host not in ranks}
        if not any(ranks.values()):
            why = "; ".join(f"{host}: {text}" for host, text in silent.items())
            none = f"no rank of {plan['job_id']} runs on any node" + (f" that answered ({why})" if why else "")
            raise UnusableError(f"{none}; expected a job that runs, see playbooks/status.yml")
        groups = [safe_text(line) for line in lines(ranks, rank_count(plan, ranks), silent)]
        file = run_dir / f"stacks-{time.strftime('%Y%m%d-%H%M%S')}.txt"
        text = f"Job {plan['job_id']} runs:\n" + "".join(f"  {line}\n" for line in groups)
        if not self._task.check_mode:
            stacks = [f"==== {host}\n\n{safe_text(answers[host]['text'])}" for host in ranks]
            write_whole(file, "\n".join([text, *stacks]))
            text += f"  all stacks  {file}"
        stop = playbook("playbooks/stop.yml", inventory_given(), {"job_id": plan["job_id"]})
        self._display.display(f"{text.rstrip()}\n  next        end it, if it hangs\n              {stop}")
        return {"groups": groups, "file": "" if self._task.check_mode else str(file)}
