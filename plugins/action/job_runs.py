# SPDX-License-Identifier: Apache-2.0
"""Find, list, pack or remove the runs that this controller started. Documentation: library/job_runs.py."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError
from ansible.module_utils.trainyard.base.adhoc import playbook
from ansible.module_utils.trainyard.base.findings import FindingsError, UnusableError, counted, host_list
from ansible.module_utils.trainyard.base.redaction import is_secret_name, safe_text
from ansible.module_utils.trainyard.cluster.unreachable import reason
from ansible.module_utils.trainyard.job.file.secret_values import SECRET
from ansible.module_utils.trainyard.job.plan import spares
from ansible.module_utils.trainyard.job.run.logs.stacks import lines, rank_count
from ansible.module_utils.trainyard.report.debug_archive import masks, secret_values
from ansible.module_utils.trainyard_controller.ansible.action_plugin import DOCUMENTED, Steps
from ansible.module_utils.trainyard_controller.job import cleaning, debug_files, run_choice
from ansible.module_utils.trainyard_controller.job.run_overview import Inventory, compare_jobs, list_runs
from ansible.module_utils.trainyard_controller.job.schedulers.scheduler_clients import asked_of
from ansible.module_utils.trainyard_controller.nodes.machine_facts import ask_machines
from ansible.module_utils.trainyard_controller.runs import run_folder
from ansible.module_utils.trainyard_controller.runs.inventory_options import inventory_given
from ansible.module_utils.trainyard_controller.runs.project import ROOT
from ansible.module_utils.trainyard_controller.runs.saved_state import read_plan
from ansible.module_utils.trainyard_node.job.run.evidence.stack_samples import SAMPLES
from ansible.template import Templar


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

    def archive(
        self,
        runs_dir: str,
        folder: str,
        network: str,
        user: str,
        root: str,
        venvs: str,
        ascend_root: str,
        job_id: str = DOCUMENTED,
        job_name: str = DOCUMENTED,
        verification: str = DOCUMENTED,
        file: str = DOCUMENTED,
        limit_s: float = DOCUMENTED,
    ) -> dict[str, Any]:
        settings = {"network": network, "user": user, "root": root, "venvs": venvs, "ascend_root": ascend_root}
        run_dir = debug_files.find_run(Path(runs_dir), job_id, job_name, verification)
        path = debug_files.target(file, folder, run_dir.name)
        nodes = self.fan_out()
        run = debug_files.visited(run_dir)
        facts = {host: {} for host in run.hosts} | ask_machines(nodes, run.hosts, settings, limit_s)
        # A node that does not answer would be waited for twice.
        own: dict[str, dict[str, Any]] = {host: {} for host in run.hosts if run.job_dir and "facts" in facts[host]}
        shared = {"job_id": run_dir.name, "job_dir": run.job_dir}
        journals = nodes.ask("journal", own, shared, limit_s) if own else {}
        hidden = masks(self._secrets(run.hosts))
        archive = debug_files.pack(run_dir, facts, journals, ROOT, hidden)
        silent = [host for host in run.hosts if "facts" not in facts[host]]
        size = 0 if self._task.check_mode else debug_files.write(path, run_dir.name, archive.files)
        written = f"{path} would be written" if self._task.check_mode else f"{path} ({size / 1024:.0f} KiB)"
        summary = [
            f"Debug archive of {run_dir.name}: {written}",
            f"  holds     {counted(len(archive.files), 'file')}; {counted(archive.hidden, 'value')} hidden (README)",
            *([f"  no answer {host_list(silent)}; its README says why"] if silent else []),
            *(
                [f"  left out  {counted(len(archive.left_out), 'file')}; its README names them"]
                if archive.left_out
                else []
            ),
            "  Look through it before you send it: it names hosts, users and paths, and has the output of the ranks.",
        ]
        self._display.display("\n".join(summary))
        return {"path": str(path), "files": sorted(archive.files), "silent": silent, "hidden": archive.hidden}

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

    def _secrets(self, hosts: Iterable[str]) -> set[str]:
        """Return the values of secrets that the inventory, -e and the prompts gave."""
        values = {text for text in (self._play_context.password, self._play_context.become_pass) if text}
        values |= _values(self.task_vars, self._templar)
        for host in hosts:
            if host in self.task_vars["hostvars"]:
                raw = self.task_vars["hostvars"].raw_get(host)
                values |= _values(raw, Templar(loader=self._loader, variables=raw))
        return values


def _values(variables: Mapping[str, Any], templar: Any) -> set[str]:
    found = {}
    for name in variables:
        if name in SECRET or is_secret_name(name):
            # What has no value here was given to no job either.
            with contextlib.suppress(AnsibleError):
                found[name] = debug_files.as_plain(templar.template(variables[name]))
    return secret_values(found)
