# SPDX-License-Identifier: Apache-2.0
"""Find, list or remove the runs that this controller started. Documentation: library/job_runs.py."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ansible.module_utils.trainyard.base.adhoc import playbook
from ansible.module_utils.trainyard.base.findings import FindingsError, UnusableError
from ansible.module_utils.trainyard.base.redaction import safe_text
from ansible.module_utils.trainyard.cluster.unreachable import reason
from ansible.module_utils.trainyard.job.plan import spares
from ansible.module_utils.trainyard.job.run.logs.stacks import lines, rank_count
from ansible.module_utils.trainyard_controller.ansible.action_plugin import DOCUMENTED, Steps
from ansible.module_utils.trainyard_controller.job import cleaning, run_choice
from ansible.module_utils.trainyard_controller.job.run_overview import Inventory, compare_jobs, list_runs
from ansible.module_utils.trainyard_controller.job.schedulers.scheduler_clients import asked_of
from ansible.module_utils.trainyard_controller.runs import run_folder
from ansible.module_utils.trainyard_controller.runs.inventory_options import inventory_given
from ansible.module_utils.trainyard_controller.runs.saved_state import read_plan
from ansible.module_utils.trainyard_node.job.run.evidence.stack_samples import SAMPLES


class ActionModule(Steps):
    def find(
        self,
        runs_dir: str,
        job_id: str = DOCUMENTED,
        job_name: str = DOCUMENTED,
        stop: bool = DOCUMENTED,
        ask_nodes: bool = DOCUMENTED,
    ) -> dict[str, Any]:
        ask = self.fan_out().ask if ask_nodes else None
        run: dict[str, Any] = run_choice.find(Path(runs_dir), job_id, job_name, must_name=stop, ask=ask)
        if run["note"]:
            self._display.display(run["note"])
        if stop and run["over"]:
            self._display.display(f"Job {run['job_id']} had ended before.")
        elif stop:
            run["launching"] = self._stops_launch(run)
        return run

    def listing(
        self,
        runs_dir: str,
        state: str = DOCUMENTED,
        name: str = DOCUMENTED,
        days: float = DOCUMENTED,
        ask_nodes: bool = DOCUMENTED,
        compare: list[str] = DOCUMENTED,
    ) -> dict[str, Any]:
        if compare:
            return {"text": compare_jobs(Path(runs_dir), compare)}
        nodes, chosen = self.fan_out(), {"state": state, "name": name, "days": days}
        inventory = Inventory(inventory_given(), nodes.knows)
        return list_runs(Path(runs_dir), nodes.ask if ask_nodes else None, chosen, inventory)

    def stacks(self, run_dir: str, seconds: int = DOCUMENTED) -> dict[str, Any]:
        folder = Path(run_dir)
        plan = read_plan(folder)
        if "engine" in plan and not plan["nodes"]:
            kind = plan["engine"]["kind"]
            found = f"{plan['job_id']} is a job of {kind}, and no monitor of trainyard is known on its nodes"
            raise UnusableError(f"{found}; expected a job with monitors that runs")
        samples = max(SAMPLES, seconds)
        shared = {"job_id": plan["job_id"], "job_dir": plan["job_dir"], "looks": samples}
        nodes: dict[str, Any] = {host: {} for host in spares.hosts(plan)}
        answers = asked_of(plan, folder, self.fan_out().ask)("stacks", nodes, shared, limit_s=60 + 2 * samples)
        ranks = {host: answer["ranks"] for host, answer in answers.items() if "ranks" in answer}
        silent = {host: reason(answer) or "no answer" for host, answer in answers.items() if host not in ranks}
        if not any(ranks.values()):
            why = "; ".join(f"{host}: {text}" for host, text in silent.items())
            none = f"no rank of {plan['job_id']} runs on any node" + (f" that answered ({why})" if why else "")
            raise UnusableError(f"{none}; expected a job that runs, see playbooks/status.yml")
        groups = [safe_text(line) for line in lines(ranks, rank_count(plan, ranks), silent)]
        file = folder / f"stacks-{time.strftime('%Y%m%d-%H%M%S')}.txt"
        text = f"Job {plan['job_id']} runs:\n" + "".join(f"  {line}\n" for line in groups)
        if not self._task.check_mode:
            stacks = [f"==== {host}\n\n{safe_text(answers[host]['text'])}" for host in ranks]
            run_folder.write_whole(file, "\n".join([text, *stacks]))
            text += f"  all stacks  {file}"
        stop = playbook("playbooks/stop.yml", inventory_given(), {"job_id": plan["job_id"]})
        self._display.display(f"{text.rstrip()}\n  next        end it, if it hangs\n              {stop}")
        return {"groups": groups, "file": "" if self._task.check_mode else str(file)}

    def choose(
        self,
        hosts: list[str],
        known_hosts: list[str],
        runs_dir: str,
        state_dir: str,
        job_id: str = DOCUMENTED,
        older_than_days: float | None = DOCUMENTED,
        of_runs: bool = DOCUMENTED,
    ) -> dict[str, Any]:
        request = cleaning.Request(
            hosts, known_hosts, Path(runs_dir), state_dir, job_id or "", older_than_days, of_runs, self._task.check_mode
        )
        return asdict(cleaning.plan(request, self.fan_out().ask, time.time()))

    def clean(
        self, runs_dir: str, chosen: dict[str, Any], log_limit: int, excluded_file: str, record: bool = DOCUMENTED
    ) -> dict[str, Any]:
        if not self._task.check_mode:
            self._remove(chosen, Path(runs_dir), log_limit, Path(excluded_file))
        if not record:
            self._display.display(chosen["text"])
        return {"changed": any(chosen[name] for name in ("remove", "objects", "records"))}

    def _stops_launch(self, run: dict[str, Any]) -> bool:
        """Stop a launch that has started nothing yet; otherwise wait until its nodes have answered."""
        job, check = f"Job {run['job_id']}", self._task.check_mode
        waits = f"{job} is being started: waiting until its nodes have answered."
        stops: bool = run["launching"]
        if not check:
            stops = run_folder.stop_launch(Path(run["run_dir"]), lambda: self._display.display(waits))
        if stops:
            how = "would be told, and end" if check else "has been told, and ends"
            self._display.display(f"{job} is not started yet: its launch {how} before it starts anything.")
        return stops

    def _remove(self, chosen: dict[str, Any], runs_dir: Path, log_limit: int, excluded_file: Path) -> None:
        """Complete open records of jobs, then remove their folders. Raises FindingsError."""
        ask = self.fan_out().ask
        names = cleaning.unrecorded(chosen["remove"], chosen["objects"], chosen["records"], runs_dir)
        lines, findings = cleaning.record_ends(names, runs_dir, ask, log_limit, excluded_file)
        if lines:
            self._display.display("\n".join(lines))
        if findings:
            raise FindingsError(findings, "{count} {findings}: nothing was removed.")
        answers = {**cleaning.remove(chosen["remove"], ask), **cleaning.remove_objects(chosen["objects"], runs_dir)}
        findings = cleaning.note(runs_dir, answers, chosen["records"], time.time())
        if findings:
            raise FindingsError(findings, "{count} {findings}: not everything could be removed.")
