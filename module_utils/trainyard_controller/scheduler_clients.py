# SPDX-License-Identifier: Apache-2.0
"""Clients of the external schedulers.

Slurm is queried on its login host through the fan-out, Kubernetes from the controller through its client. Both have
submit (returns `engine_id`, the scheduler's name for the job), state (JobState, with `line` and `told` for watchers;
`waits` if the caller waits for the end), logs (answers with `logs` in base64 by name and the `exits` of tasks, and a
warning or "") and end (`changed`). A failed call returns `failed` and `msg` instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ..trainyard.findings.findings import Finding
from ..trainyard.job.file.job import Job
from ..trainyard.job.plan import log_names
from ..trainyard.job.plan.preflight import join
from ..trainyard.job.schedulers.kubernetes import scheduler as kubernetes
from ..trainyard.job.schedulers.kubernetes import settings
from ..trainyard.job.schedulers.kubernetes.manifests import secrets
from ..trainyard.job.schedulers.sbatch import SCRIPT
from .kubernetes_cluster import Cluster, ClusterError, preflight
from .kubernetes_run import after_deletion, job_logs, job_state, remove, submit
from .run_folder import scheduler_of

Answer = dict[str, Any]
# FanOut.ask: sends a query to the agent of hosts, with arguments for each; returns the answers by host.
Ask = Callable[..., Mapping[str, Answer]]
# Time limits in seconds. sbatch may wait for a busy controller; a canceled job has 90 s, besides the commands.
_SUBMIT_S, _END_S = 90.0, 300.0
_LOGS_S = 300.0


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
            needs = kubernetes.needs(chosen, recovery=job.restarts.recovery)
            made = kubernetes.other_kinds(chosen, secrets=bool(job.secret_env))
            findings = preflight(cluster, chosen.resource, needs, made)
    except ClusterError as error:
        findings = [error.finding]
    return {**facts, "unsuitable": bool(findings)}, findings


@dataclass(frozen=True)
class Slurm:
    """A job of Slurm, with `plan` and `engine` of its run (run_folder.scheduler_of)."""

    plan: Mapping[str, Any]
    engine: Mapping[str, Any]
    ask: Ask

    def _call(self, question: str, limit_s: float = 120.0, **arguments: Any) -> Answer:
        host = self.engine["submit_host"]
        return self.ask(question, {host: {"user": self.engine["settings"]["user"], **arguments}}, limit_s=limit_s)[host]

    def submit(self, run_dir: Path, secret_env: Mapping[str, str], secret_files: Mapping[str, str]) -> Answer:
        """Submit the script with sbatch. The plan rejects secrets before."""
        del secret_env, secret_files
        return self._call("slurm_submit", _SUBMIT_S, script=(run_dir / SCRIPT).read_text())

    def state(self, *, waits: bool) -> Answer:
        """Read the state from slurmctld, the accounting, or the job's folder."""
        del waits
        named = {name: self.engine[name] for name in ("engine_id", "world_size", "rank_log", "progress_pattern")}
        host, shared = self.engine["submit_host"], self.engine["settings"]["shared"]
        return self._call("slurm_state", job_dir=self.plan["job_dir"], login_host=host, shared=shared, **named)

    def logs(self, state: Mapping[str, Any], limit: int) -> tuple[list[Answer], str]:
        """Fetch them from the nodes that have logs; the report names lost nodes."""
        about = {"job_dir": self.plan["job_dir"], "log_limit": limit}
        answers = self.ask("slurm_logs", dict.fromkeys(state["log_hosts"], about), limit_s=_LOGS_S)
        return log_names.take_slurm_logs(self.plan, state, answers)

    def end(self, *, check: bool) -> Answer:
        """Cancel it, after its ranks had their time to save, and wait for its end."""
        grace_s = self.engine["settings"].get("stop_grace_s", 0)
        about = {"engine_id": self.engine["engine_id"], "check": check, "grace_s": grace_s}
        return self._call("slurm_end", _END_S + grace_s, **about)


@dataclass(frozen=True)
class Kubernetes:
    """A job in a cluster, with `engine` of its run (run_folder.scheduler_of)."""

    engine: Mapping[str, Any]

    @property
    def _settings(self) -> Mapping[str, Any]:
        settings: Mapping[str, Any] = self.engine["settings"]
        return settings

    def _call(self, otherwise: str, function: Callable[..., Answer], *arguments: Any) -> Answer:
        access = [self._settings[name] for name in ("kubeconfig", "context", "namespace")]
        try:
            return function(Cluster(*access), *arguments)
        except ClusterError as error:
            return {"failed": True, "msg": f"{otherwise} {error}"}

    def submit(self, run_dir: Path, secret_env: Mapping[str, str], secret_files: Mapping[str, str]) -> Answer:
        """Create its Secrets and the objects of its manifest, all or none."""
        settings, manifest = self._settings, run_dir / "manifest.yml"
        objects = secrets(settings["name"], secret_env, secret_files)
        objects += [each for each in yaml.safe_load_all(manifest.read_text()) if each]
        rejected = f"The cluster rejected job {run_dir.name}; its objects were removed. The manifest is {manifest}."
        engine_id = f"{settings['resource']} {settings['namespace']}/{settings['name']}"
        return self._call(rejected, submit, objects) or {"engine_id": engine_id}

    def state(self, *, waits: bool) -> Answer:
        """Read the job's pods."""
        otherwise = "The state of the job cannot be read from the cluster:"
        # A line of the log could show a secret, and nothing here has its value to mask it.
        quotes = not self.engine["secret_env"]
        return self._call(otherwise, job_state, self._settings, self.engine["progress_pattern"], waits, quotes)

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
        return [self._call(otherwise, job_logs, self._settings, limit, pattern)], ""

    def end(self, *, check: bool) -> Answer:
        """Do nothing, as `remove` ends a job."""
        del check
        return {"changed": False}


def external_job(plan: Mapping[str, Any], runs_dir: Path, ask: Ask) -> Slurm | Kubernetes:
    """Return the job of a plan with an `engine`."""
    engine = scheduler_of(plan, runs_dir)
    return Slurm(plan, engine, ask) if engine["kind"] == "slurm" else Kubernetes(engine)
