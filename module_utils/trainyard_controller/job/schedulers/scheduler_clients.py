# SPDX-License-Identifier: Apache-2.0
"""Clients of the external schedulers.

Slurm is queried on its login host through the fan-out, Kubernetes from the controller through its client. Both have
submit (returns `engine_id`, the scheduler's name for the job), state (JobState, with `line` and `told` for watchers;
`waits` if the caller waits for the end), logs (answers with `logs` in base64 by name, and a warning
or "") and end (`changed`). A failed call returns `failed` and `msg` instead.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from secrets import token_urlsafe
from typing import Any

import yaml

from ....trainyard.base.findings import Finding
from ....trainyard.base.shapes import misfit
from ....trainyard.job.file.job import PLAN_OPTIONS, Job
from ....trainyard.job.plan.preflight import join
from ....trainyard.job.record.folder_layout import on_host
from ....trainyard.job.run.wire.answers import checked
from ....trainyard.job.schedulers import plan_shape
from ....trainyard.job.schedulers.kubernetes import scheduler, settings
from ....trainyard.job.schedulers.kubernetes.manifests import secrets
from ....trainyard.job.schedulers.sbatch import SCRIPT
from ...runs.run_folder import scheduler_of, write_whole
from .kubernetes_cluster import Cluster, ClusterError, preflight
from .kubernetes_run import after_deletion, answers, job_logs, job_state, remove, submit

Answer = dict[str, Any]
# FanOut.ask: sends a query to the agent of hosts, with arguments for each; returns the answers by host.
Ask = Callable[..., Mapping[str, Answer]]
# Time limits in seconds. sbatch may wait for a busy controller; a canceled job has 90 s, besides the commands.
_SUBMIT_S, _END_S = 90.0, 300.0
_LOGS_S = 300.0
# How long the steps may take by which a login host asks others, beside their question.
_STEP_S = 30.0
# The log of a job's script, and what stays of our own plan when the hosts have planned.
NO_NODES: Mapping[str, Any] = {"nodes": []}
_LOG = "slurm.log"
_OURS = (
    *("launch", "asked_by", "source_left_out", "check", "format", "job_name", "launcher", "rank_log"),
    *PLAN_OPTIONS,
)


def probe_slurm(host: str, about: Mapping[str, Any], ask: Ask, limit: str = "") -> tuple[Answer, list[Finding]]:
    """Read the facts of the cluster on the login host, if there is one. `limit` is the value of --limit."""
    if not host:
        return {}, []
    answer = ask("slurm_probe", {host: about})[host]
    return answer.get("facts") or {}, join([], {host: answer}, limit)


def probe_kubernetes(job: Job) -> tuple[Answer, list[Finding]]:
    """Check the cluster. `unsuitable` in the facts means that it cannot run the job, so no plan is needed."""
    facts: Answer = {}
    findings = []
    try:
        cluster = Cluster(job.kubernetes.kubeconfig, job.kubernetes.context, job.kubernetes.namespace)
        facts = {"version": cluster.version(), "server": cluster.server, "namespace": cluster.namespace}
        # The plan reports errors of the job file.
        chosen, _ = settings.parse(job)
        if chosen is not None:
            needs = scheduler.needs(chosen, recovery=job.restarts.recovery)
            made = scheduler.other_kinds(chosen, secrets=bool(job.secret_env))
            findings = preflight(cluster, chosen.resource, needs, made)
    except ClusterError as error:
        findings = [error.finding]
    return {**facts, "unsuitable": bool(findings)}, findings


class Slurm:
    """A job of Slurm. `plan` has its nodes once its hosts have planned; from then on they answer as over ssh."""

    def __init__(self, plan: Mapping[str, Any], run_dir: Path, ask: Ask) -> None:
        """Take the plan and the folder of the run."""
        self.plan, self._visit = plan, ask
        self.run_dir, self._engine = run_dir, scheduler_of(plan, run_dir.parent)

    def _call(self, query: str, patience_s: float = 120.0, /, **arguments: Any) -> Answer:
        host = self._engine["submit_host"]
        return self._visit(query, {host: arguments}, limit_s=patience_s)[host]

    def ask(
        self,
        question: str,
        own: Mapping[str, Mapping[str, Any]],
        shared: Mapping[str, Any] | None = None,
        limit_s: float = 120.0,
    ) -> Mapping[str, Answer]:
        """Ask hosts of the job: over ssh, or where they share its folder with the login host from there."""
        if not self._engine["settings"]["shared"]:
            return self._visit(question, own, shared, limit_s=limit_s)
        arguments = {host: on_host({**(shared or {}), **each}, host) for host, each in own.items()}
        about = {"engine_id": self._engine["engine_id"], "user": self._user, "question": question, "limit_s": limit_s}
        found = self._call("slurm_ask", limit_s + _STEP_S, arguments=arguments, **about)
        if "answers" not in found:
            return dict.fromkeys(own, found)
        return {host: _answer(question, found["answers"].get(host, ""), host) for host in own}

    def submit(self, secret_env: Mapping[str, str], secret_files: Mapping[str, str]) -> Answer:
        """Submit the script with sbatch. Secrets lie in a file beside the hosts' folders."""
        private = {"secret_env": dict(secret_env), "secret_files": dict(secret_files)}
        about = {"user": self._user, "secrets": {self._secrets: private} if self._secrets else {}}
        return self._call("slurm_submit", _SUBMIT_S, script=(self.run_dir / SCRIPT).read_text(), **about)

    @property
    def _secrets(self) -> str:
        return str(self._engine["settings"].get("secrets") or "")

    @property
    def _user(self) -> str:
        return str(self._engine["settings"]["user"])

    def state(self, *, waits: bool) -> Answer:
        """Read the state from slurmctld or the accounting, and the plan of the hosts as soon as there is one."""
        del waits
        found = self._call("slurm_state", engine_id=self._engine["engine_id"])
        if found.get("hosts") and found["state"] != "pending":
            self._read_plan(found["hosts"][0], found["requeued"])
        return found

    def planned(self, state: Mapping[str, Any]) -> bool:
        """Return whether the hosts have planned this run of the job, or the last one that Slurm knew of."""
        now = self.plan.get("run", 0) == state["requeued"] and state["state"] != "pending"
        return bool(self.plan["nodes"]) and (now or state["state"] == "lost")

    def _read_plan(self, host: str, run: int) -> None:
        """Take over the plan that the first host of the allocation made, unless we have it."""
        if not self.plan["nodes"] or self.plan.get("run") != run:
            answer = self.ask("planned", {host: {"job_dir": self.plan["job_dir"], "log_limit": 0}})[host]
            self.plan = take_over(self.plan, answer, run, self._engine["engine_id"], self.run_dir)

    def logs(self, state: Mapping[str, Any], limit: int) -> tuple[list[Answer], str]:
        """Fetch the log of a job that its hosts could not plan."""
        hosts = list(state["hosts"])[:1]
        about = {"job_dir": self.plan["job_dir"], "log_limit": limit}
        answers = self.ask("planned", dict.fromkeys(hosts, about), limit_s=_LOGS_S)
        logs = (answer.get("logs", {}) for answer in answers.values())
        return [{"logs": {_LOG: each[_LOG]}} for each in logs if _LOG in each], ""

    def end(self, *, check: bool) -> Answer:
        """Cancel it, and wait for its end."""
        about = {"user": self._user, "secrets": self._secrets}
        return self._call("slurm_end", _END_S, engine_id=self._engine["engine_id"], check=check, **about)


def take_over(ours: Mapping[str, Any], answer: Answer, run: int, engine_id: str, run_dir: Path) -> Mapping[str, Any]:
    """Return the plan that the hosts of a job made in this run of it, and keep it; ours where there is none."""
    try:
        made = json.loads(answer.get("plan") or "{}", parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return ours
    # Any process of the job's user may have written it: nothing of another job or folder becomes this one's.
    same = made and not misfit(made, plan_shape.PLAN) and made.get("run") == run
    if not same or any(made[name] != ours[name] for name in ("job_id", "job_dir")):
        return ours
    kept = {name: ours[name] for name in _OURS if name in ours}
    plan = {**made, **kept, "engine": {**ours["engine"], "id": engine_id}}
    write_whole(run_dir / "plan.json", json.dumps(plan, indent=2) + "\n")
    return plan


def _answer(question: str, text: str, host: str) -> Answer:
    """Return the answer of a host in the text of its step, which may have lines of the login before it."""
    try:
        found = json.loads(text.strip().rpartition("\n")[2])
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        return {"failed": True, "msg": "no answer"}
    return checked(question, found, host)


class Kubernetes:
    """A job in a cluster, with `engine` of its run (run_folder.scheduler_of).

    `plan` of a plain Job has its nodes once its pods have planned; from then on they answer as over ssh.
    """

    def __init__(
        self, engine: Mapping[str, Any], run_dir: Path | None = None, plan: Mapping[str, Any] = NO_NODES
    ) -> None:
        """Take the job's engine, and the folder and the plan of its run; objects are removed without these."""
        self.engine, self.run_dir = engine, run_dir or Path()
        self.plan = plan
        self._settings: Mapping[str, Any] = engine["settings"]
        self._is_plain = self._settings["resource"] == "Job"

    def _call(self, otherwise: str, function: Callable[..., Answer], *arguments: Any) -> Answer:
        access = [self._settings[name] for name in ("kubeconfig", "context", "namespace")]
        try:
            return function(Cluster(*access), *arguments)
        except ClusterError as error:
            return {"failed": True, "msg": f"{otherwise} {error}"}

    def ask(
        self,
        question: str,
        own: Mapping[str, Mapping[str, Any]],
        shared: Mapping[str, Any] | None = None,
        limit_s: float = 120.0,
    ) -> Mapping[str, Answer]:
        """Ask pods of a plain Job by their names in the plan."""
        arguments = {host: {**(shared or {}), **each} for host, each in own.items()}
        found = self._call("The pods cannot be asked:", answers, self._settings, question, arguments, limit_s)
        return found if set(found) == set(own) else dict.fromkeys(own, found)

    def submit(self, secret_env: Mapping[str, str], secret_files: Mapping[str, str]) -> Answer:
        """Create its Secrets and the objects of its manifest, all or none."""
        settings, manifest = self._settings, self.run_dir / "manifest.yml"
        # By it the pods know each other; it is in no file of the run.
        token = token_urlsafe(30) if self._is_plain else ""
        objects = secrets(settings["name"], secret_env, secret_files, token)
        objects += [each for each in yaml.safe_load_all(manifest.read_text()) if each]
        rejected = (
            f"The cluster rejected job {self.run_dir.name}; its objects were removed. The manifest is {manifest}."
        )
        engine_id = f"{settings['resource']} {settings['namespace']}/{settings['name']}"
        return self._call(rejected, submit, objects) or {"engine_id": engine_id}

    def state(self, *, waits: bool) -> Answer:
        """Read the job's pods, and their plan as soon as there is one."""
        otherwise = "The state of the job cannot be read from the cluster:"
        # A line of the log could show a secret, and nothing here has its value to mask it.
        quotes = not self.engine["secret_env"]
        found = self._call(otherwise, job_state, self._settings, self.engine["progress_pattern"], waits, quotes)
        if self._is_plain and found.get("state") not in (None, "pending") and not self.plan["nodes"]:
            host = f"{self._settings['name']}-0"
            answer = self.ask("planned", {host: {"job_dir": self.plan["job_dir"], "log_limit": 0}})[host]
            self.plan = take_over(self.plan, answer, 0, self.engine["engine_id"], self.run_dir)
        return found

    def planned(self, state: Mapping[str, Any]) -> bool:
        """Return whether the pods of a plain Job have planned, so that they can be asked."""
        return bool(self.plan["nodes"]) and state["state"] != "pending"

    def remove(self, only: str = "") -> Answer:
        """Remove its objects in the cluster, or those of one kind, and return `changed`."""
        return self._call("The objects of the job could not be removed from the cluster:", remove, self._settings, only)

    def after_removal(self, before: Mapping[str, Any]) -> Answer:
        """Return the state of a removed job from its state `before` and its remaining pods."""
        otherwise = "The remaining pods of the job cannot be read from the cluster:"
        return self._call(otherwise, after_deletion, self._settings, before)

    def logs(self, state: Mapping[str, Any], limit: int) -> tuple[list[Answer], str]:
        """Read the logs of its pods."""
        del state
        otherwise, pattern = "The logs of the job cannot be read from the cluster:", self.engine["progress_pattern"]
        answer = self._call(otherwise, job_logs, self._settings, limit, pattern)
        return [answer], answer.get("warning", "")

    def end(self, *, check: bool) -> Answer:
        """Do nothing, as `remove` ends a job."""
        del check
        return {"changed": False}


def external_job(plan: Mapping[str, Any], runs_dir: Path, ask: Ask) -> Slurm | Kubernetes:
    """Return the job of a plan with an `engine`."""
    run_dir = runs_dir / plan["job_id"]
    if plan["engine"]["kind"] == "slurm":
        return Slurm(plan, run_dir, ask)
    return Kubernetes(scheduler_of(plan, runs_dir), run_dir, plan)


def asked_of(plan: Mapping[str, Any], run_dir: Path, ask: Ask) -> Ask:
    """Return how to ask the nodes of a job: over ssh, or as its scheduler does."""
    return external_job(plan, run_dir.parent, ask).ask if "engine" in plan else ask
