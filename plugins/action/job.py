# SPDX-License-Identifier: Apache-2.0
"""Take one step of a job on all its nodes, or with its scheduler. Documentation: library/job.py."""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError
from ansible.module_utils.trainyard.base.adhoc import playbook
from ansible.module_utils.trainyard.base.findings import Finding, FindingsError, UnusableError, counted, failure, render
from ansible.module_utils.trainyard.cluster.unreachable import reason
from ansible.module_utils.trainyard.job.drill import bisect
from ansible.module_utils.trainyard.job.file import event_receivers, secret_values
from ansible.module_utils.trainyard.job.placement import root_ranks
from ansible.module_utils.trainyard.job.placement.process import host_port
from ansible.module_utils.trainyard.job.placement.rank_order import TOPOLOGY
from ansible.module_utils.trainyard.job.plan import witness
from ansible.module_utils.trainyard.job.plan.plan import node_plans, warnings_text
from ansible.module_utils.trainyard.job.record import excluded_hosts
from ansible.module_utils.trainyard.job.run import interrupted
from ansible.module_utils.trainyard.job.run.lead import leader
from ansible.module_utils.trainyard.job.run.logs import log_lines
from ansible.module_utils.trainyard.job.schedulers.plan_shape import TO_START
from ansible.module_utils.trainyard.report.next_step import next_step
from ansible.module_utils.trainyard_controller.ansible import interrupts
from ansible.module_utils.trainyard_controller.ansible.action_plugin import DOCUMENTED, Steps
from ansible.module_utils.trainyard_controller.inputs.value_sources import with_places
from ansible.module_utils.trainyard_controller.job import collecting, planning, reporting, watching
from ansible.module_utils.trainyard_controller.job.live_page import LivePage
from ansible.module_utils.trainyard_controller.job.schedulers.scheduler_clients import Ask, asked_of, external_job
from ansible.module_utils.trainyard_controller.nodes.fan_out import Answer, FanOut, end_visits
from ansible.module_utils.trainyard_controller.runs import excluded_record, topologies
from ansible.module_utils.trainyard_controller.runs.inventory_options import inventory_given
from ansible.module_utils.trainyard_controller.runs.run_folder import StoppedError, note_submitted, starting
from ansible.module_utils.trainyard_controller.runs.saved_state import read_plan


class ActionModule(Steps):
    def prepare(
        self,
        job: dict[str, Any],
        given: list[str],
        hosts: list[str],
        known_hosts: list[str],
        available: int,
        submit_host: str,
        runs_dir: str,
        state_dir: str,
        facts_file: str,
        excluded_file: str,
        user: str,
        mpi_prefix: str,
        all_reduce: str,
        venvs: str,
        asked_by: str,
        topology: str = DOCUMENTED,
        found: list[dict[str, Any]] = DOCUMENTED,
        follow: Any = DOCUMENTED,
        live: bool = DOCUMENTED,
        record: bool = DOCUMENTED,
    ) -> dict[str, Any]:
        nodes = self.fan_out()
        places = [_host(nodes, name) for name in hosts]
        request = planning.Request(
            job=job,
            given=given,
            hosts=places,
            available=available,
            runs_dir=Path(runs_dir),
            state_dir=state_dir,
            user=user,
            mpi_prefix=mpi_prefix,
            all_reduce=all_reduce,
            venvs=venvs,
            asked_by=asked_by,
            facts_file=Path(facts_file),
            limit=str(self.task_vars.get("ansible_limit") or ""),
            check=self._task.check_mode,
            found=[
                *root_ranks.findings(user, bool(self._task.become)),
                *self._secrets(job, places),
                *map(Finding.from_dict, found),
            ],
            submit_host=submit_host,
            known=known_hosts,
            excluded_file=Path(excluded_file),
            follow=follow,
            live=live,
            show=self._display.display,
        )
        try:
            known = self._topology(topology, job, runs_dir, hosts)
            prepared = planning.prepare(replace(request, topology=known), nodes.ask)
        except Exception as error:
            if not record:
                raise
            # Our own error is the answer for one job among others.
            own = Finding(
                "job", f"{type(error).__name__}: {error}", "a job", "run it again with -vvv, which shows where"
            )
            prepared = planning.Prepared([own])
        findings = prepared.findings if record else with_places(prepared.findings, self.task_vars)
        run = {"job_id": "", "job_dir": "", "run_dir": "", "settings": {}}
        if not findings:
            plan = prepared.plan
            run = {"job_id": plan["job_id"], "job_dir": plan["job_dir"], "run_dir": str(prepared.run_dir)}
            run["settings"] = plan.get("engine", {}).get("settings", {})
        self._show(prepared, record, bool(findings))
        return {
            **run,
            "refused": [finding.as_dict() for finding in findings],
            "facts_file": facts_file,
            "changed": prepared.run_dir is not None and not record,
            **(failure(findings, prepared.headline) if findings and not record else {}),
            **({"warnings": [prepared.warning]} if prepared.warning else {}),
        }

    def start(
        self,
        run_dir: str,
        user: str,
        wait: bool,
        secret_env: dict[str, Any] = DOCUMENTED,
        secret_files: dict[str, str] = DOCUMENTED,
        events: dict[str, Any] = DOCUMENTED,
        registry_auth: dict[str, Any] = DOCUMENTED,
        record: bool = DOCUMENTED,
    ) -> dict[str, Any]:
        folder = Path(run_dir)
        plan = read_plan(folder, TO_START)
        job_id, external, not_started = plan["job_id"], "engine" in plan, {}
        if interrupts.noted():
            return {"job_id": job_id, "not_started": {}, "interrupted": True}
        events_file = _file("events.json", event_receivers.settings(events))
        try:
            with starting(folder):
                if external:
                    files = {**secret_files, **events_file, **_file("registry.json", registry_auth)}
                    done = f"Submitted as {self._submit(plan, folder, secret_env, files)}"
                else:
                    given = {"user": user, "secret_env": secret_env, "secret_files": secret_files}
                    not_started = self._start(plan, folder, events_file, given)
                    done = "Started"
                if not wait and not not_started:
                    self._show_next(done, job_id)
        except StoppedError:
            stopped = "was stopped (playbooks/stop.yml) before anything of it was started."
            raise UnusableError(f"Job {job_id} {stopped}") from None
        return {"changed": external or not record, "job_id": job_id, "not_started": not_started}

    def watch(
        self,
        run_dir: str,
        follow: Any = DOCUMENTED,
        live: bool = DOCUMENTED,
        record: bool = DOCUMENTED,
        until_lost: bool = DOCUMENTED,
    ) -> dict[str, Any]:
        folder = Path(run_dir)
        plan = read_plan(folder)
        enough = bisect.is_lost if until_lost else lambda _: False
        nodes = self.fan_out()
        lines, page, show = None, None, self._display.display

        def asking(fan_out: FanOut) -> Ask:
            return asked_of(plan, folder, fan_out.ask)

        findings = log_lines.findings(plan, follow, live)
        if findings:
            raise FindingsError(findings, "{count} {findings}: the job goes on, and is not watched.")
        if follow not in (None, ""):
            logs = log_lines.logs(plan, log_lines.parse_ranks(follow, plan["world_size"])[0])
            # The head is queried for lines and for the job at the same time, so lines need their own connections.
            lines = watching.Lines(plan, logs, asking(self.fan_out()))
        if live:
            live_page = LivePage(plan, folder, asking(nodes))
            page = live_page.write
            show(f"  page        {live_page.path}")

        def watched(fan_out: FanOut) -> watching.Watched:
            if "engine" in plan:
                return watching.ExternalWatch(plan, folder, fan_out.ask)
            return watching.OverSsh(plan, fan_out.ask, fan_out.forget, enough)

        waits = {"job_id": plan["job_id"], "state": "running"}
        hint = "  next: {}:\n    {}".format(*next_step(waits, plan.get("launch") or {}, stuck=True))
        try:
            lost = watching.follow(watched(nodes), nodes.forget, show, lines, page, interrupts.leaves, hint)
        except watching.LeftError:
            # The connection to the head is still in use: this takes another one.
            found = watched(self.fan_out()).read(0.0)
            end_visits()
            if "state" not in found:
                return {"goes_on": True, "lost": reason(found) or "no answer"}
            return {"goes_on": found["state"] in ("pending", "running"), "lost": ""}
        if lost and not record:
            how = interrupted.commands(plan["job_id"], inventory_given())
            raise UnusableError(interrupted.goes_on(plan["job_id"], how, lost))
        return {"goes_on": False, "lost": lost}

    def collect(
        self, run_dir: str, stop: bool, asked: str, user: str, log_limit: int, not_started: dict[str, Any] = DOCUMENTED
    ) -> dict[str, Any]:
        request = collecting.Request(log_limit, asked, stop, self._task.check_mode, user, not_started)
        folder = Path(run_dir)
        return collecting.collect(read_plan(folder), folder, self.fan_out().ask, request)

    def report(
        self,
        run_dir: str,
        asked: str,
        excluded_file: str,
        answers: dict[str, Any] = DOCUMENTED,
        not_started: dict[str, Any] = DOCUMENTED,
        notes: list[str] = DOCUMENTED,
        job_state: dict[str, Any] | None = DOCUMENTED,
    ) -> dict[str, Any]:
        excluded = Path(excluded_file)
        reported = reporting.report(
            Path(run_dir),
            answers,
            not_started,
            by_stop=asked == "stop",
            check=self._task.check_mode,
            job_state=job_state,
            excluded_file=excluded,
            notes=notes,
        )
        result: dict[str, Any] = {"state": reported.summary["state"], "left": reported.left}
        result["changed"] = reported.changed and asked != "record"
        if is_bad(asked, reported):
            result.update(failed=True, msg=reported.text)
        elif asked != "record":
            lines = excluded_hosts.lines(excluded_record.read(excluded)) if asked == "tell" else []
            self._display.display("\n".join([reported.text, *lines]))
        return result

    def _topology(self, given: str, job: dict[str, Any], runs_dir: str, hosts: list[str]) -> dict[str, Any] | None:
        if job.get("job_rank_order") != TOPOLOGY:
            return None
        sources = self.task_vars.get("ansible_inventory_sources") or ()
        return topologies.known(given, Path(runs_dir), sources, hosts)

    def _secrets(self, job: Mapping[str, Any], hosts: list[planning.Host]) -> list[Finding]:
        """Find values of job_secret_env in other variables. No option of the task has them."""
        value = self._templar.template(self.task_vars.get("job_secret_env") or {})
        secrets = value if isinstance(value, Mapping) else {}
        found = secret_values.findings(job, self.task_vars, secrets)
        own = {repr(host.env): host for host in hosts if secrets and host.env}
        return found + [
            each.on(host.name)
            for host in own.values()
            for each in secret_values.findings({"job_node_env": host.env}, self.task_vars, secrets)
        ]

    def _show(self, prepared: planning.Prepared, record: bool, refused: bool) -> None:
        texts = ["\n".join(prepared.readmitted)]
        if prepared.left_out:
            texts.append(render(prepared.left_out, planning.WITHOUT))
        if prepared.not_sent and not record:
            texts.append(f"Not sent of job_source: {prepared.not_sent}")
        if not refused:
            # The plan that --check shows ends with its warnings.
            warnings = warnings_text(prepared.plan)
            texts.append(prepared.text if self._task.check_mode else f"{warnings}\n" if warnings else "")
        for text in filter(None, texts):
            self._display.display(text)

    def _start(
        self, plan: dict[str, Any], run_dir: Path, events: dict[str, str], given: dict[str, Any]
    ) -> dict[str, Answer]:
        """Have each node start its part; return the answers of those that have not.

        Secrets go through standard input alone.
        """
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
            **given,
            # Token that authenticates the monitors.
            "token": secrets.token_urlsafe(30),
        }
        own: dict[str, dict[str, Any]] = {host: {"node_plan": own_plan} for host, own_plan in node_plans(plan).items()}
        # Only the host that leads the job sends events.
        for host in leader.hosts(plan) if events else ():
            own[host]["secret_files"] = {**shared["secret_files"], **events}
        if "witness" in plan:
            # It runs nothing of the job, so it gets none of its files and secrets.
            own[witness.host(plan)] |= {"files": [], "source_archive": "", "secret_env": {}, "secret_files": {}}
        nodes = self.fan_out()
        return _not_started(plan, nodes, nodes.ask("start", own, shared, limit_s=180))

    def _submit(self, plan: dict[str, Any], run_dir: Path, secret_env: dict[str, Any], files: dict[str, str]) -> str:
        """Submit the job to its scheduler, and record and return the scheduler's name for it."""
        engine = plan["engine"]
        self._display.display(
            f"Job {plan['job_id']}: {counted(plan['world_size'], 'rank')} on {counted(engine['nodes'], 'node')} "
            f"({engine['kind']}, {engine['starts']}), submitted from {engine['submit_host']}"
        )
        if engine["settings"].get("renamed"):
            self._display.display(engine["settings"]["renamed"])
        client = external_job(plan, run_dir.parent, self.fan_out().ask)
        answer = client.submit(secret_env, files)
        if "engine_id" not in answer:
            raise UnusableError(reason(answer))
        note_submitted(run_dir, answer["engine_id"])
        return str(answer["engine_id"])

    def _show_next(self, done: str, job_id: str) -> None:
        """Show the commands for a job that nobody waits for."""
        lines = [
            f"  {name:8} {playbook(f'playbooks/{name}.yml', inventory_given(), {'job_id': job_id})}"
            for name in ("watch", "status", "stop")
        ]
        self._display.display("\n".join([f"{done}; not waiting for its end (job_wait: false).", *lines]))


def _host(nodes: FanOut, name: str) -> planning.Host:
    try:
        address, env = nodes.values(name, "ansible_host", "job_node_env")
    except AnsibleError as error:
        raise AnsibleError(f"{name}: {error}") from error
    return planning.Host(name, str(address or name), env)


def _file(name: str, content: dict[str, Any] | None) -> dict[str, str]:
    return {name: base64.b64encode(json.dumps(content).encode()).decode()} if content else {}


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


def is_bad(purpose: str, reported: reporting.Reported) -> bool:
    """Tell whether the playbook fails: launch and watch unless the job succeeded, stop if something is left.

    status and logs only show the state. A verification records it, and goes on.
    """
    state = reported.summary["state"]
    if purpose == "end":
        return state not in ("succeeded", "running")
    return purpose == "stop" and (bool(reported.left) or state == "lost")
