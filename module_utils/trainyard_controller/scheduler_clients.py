# SPDX-License-Identifier: Apache-2.0
"""Clients of the external schedulers: probe, submit, state, logs, end.

Slurm is queried on its login host through the fan-out, Kubernetes from the controller through its client.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import yaml

from ..trainyard.findings.findings import Finding
from ..trainyard.job.file.job import Job
from ..trainyard.job.plan import log_names
from ..trainyard.job.plan.preflight import join
from ..trainyard.job.schedulers.kubernetes import scheduler as kubernetes
from ..trainyard.job.schedulers.kubernetes import settings
from ..trainyard.job.schedulers.kubernetes.manifests import secrets
from ..trainyard.job.schedulers.sbatch import SCRIPT
from .run_folder import scheduler_of

Answer = dict[str, Any]
# Time limits in seconds. sbatch may wait for a busy controller; a canceled job has 90 s, besides the commands.
_SUBMIT_S, _END_S = 90.0, 300.0
_LOGS_S = 300.0


class Ask(Protocol):
    """Sends a question to the agent of hosts, with arguments for each; returns the answers by host."""

    def __call__(
        self, question: str, own: Mapping[str, Mapping[str, Any]], *, limit_s: float = 120.0
    ) -> Mapping[str, Answer]:
        """Send it, and wait up to `limit_s` seconds for each answer."""


def probe_slurm(host: str, about: Mapping[str, Any], ask: Ask, limit: str = "") -> tuple[Answer, list[Finding]]:
    """Read the facts of the cluster on the login host, if there is one. `limit` is the value of --limit."""
    if not host:
        return {}, []
    answer = ask("slurm_probe", {host: about})[host]
    return answer.get("facts") or {}, join([], {host: answer}, limit)


def probe_kubernetes(job: Job) -> tuple[Answer, list[Finding]]:
    """Check the cluster. `unsuitable` in the facts means that it cannot run the job, so no plan is needed."""
    # Imported here, as the client is optional.
    from .kubernetes_cluster import Cluster, ClusterError, preflight

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


class ExternalJob(Protocol):
    """A job of an external scheduler. A failed call returns `msg` instead of `state`, `logs` or `engine_id`."""

    def submit(self, run_dir: Path, secret_env: Mapping[str, str], secret_files: Mapping[str, str]) -> Answer:
        """Submit it and return `engine_id`, the scheduler's name for it. Secret files are base64 by path."""

    def state(self, *, waits: bool) -> Answer:
        """Return the JobState with `line` and `told` for watchers; `waits` if the caller waits for its end."""

    def logs(self, state: Mapping[str, Any], limit: int) -> tuple[list[Answer], str]:
        """Return answers with `logs` (base64 by name) and the `exits` of tasks; and a warning, or ""."""

    def end(self, *, check: bool) -> Answer:
        """End it and return `changed`."""


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
        """Cancel it and wait for its end."""
        return self._call("slurm_end", _END_S, engine_id=self.engine["engine_id"], check=check)


@dataclass(frozen=True)
class Kubernetes:
    """A job in a cluster, with `engine` of its run (run_folder.scheduler_of)."""

    engine: Mapping[str, Any]

    def submit(self, run_dir: Path, secret_env: Mapping[str, str], secret_files: Mapping[str, str]) -> Answer:
        """Create its Secrets and the objects of its manifest, all or none."""
        from .kubernetes_run import submit

        made, manifest = self.engine["settings"], run_dir / "manifest.yml"
        objects = secrets(made["name"], secret_env, secret_files)
        objects += [each for each in yaml.safe_load_all(manifest.read_text()) if each]

        def make(cluster: Any) -> Answer:
            submit(cluster, objects)
            return {"engine_id": f"{made['resource']} {made['namespace']}/{made['name']}"}

        rejected = f"The cluster rejected job {run_dir.name}; its objects were removed."
        return self._call(f"{rejected} The manifest is {manifest}.", make)

    def state(self, *, waits: bool) -> Answer:
        """Read the job's pods."""
        from .kubernetes_run import job_state

        made, pattern = self.engine["settings"], self.engine["progress_pattern"]
        return self._call(
            "The state of the job cannot be read from the cluster:",
            lambda cluster: job_state(cluster, made, pattern, waits),
        )

    def remove(self, only: str = "") -> Answer:
        """Remove its objects in the cluster, or those of one kind, and return `changed`."""
        from .kubernetes_run import remove

        def go(cluster: Any) -> Answer:
            remove(cluster, self.engine["settings"], only)
            return {"changed": True}

        return self._call("The objects of the job could not be removed from the cluster:", go)

    def after_removal(self, before: Mapping[str, Any]) -> Answer:
        """Return the state of a removed job from its state `before` and its remaining pods."""
        from .kubernetes_run import after_deletion

        made = self.engine["settings"]
        return self._call(
            "The remaining pods of the job cannot be read from the cluster:",
            lambda cluster: after_deletion(cluster, made, before),
        )

    def logs(self, state: Mapping[str, Any], limit: int) -> tuple[list[Answer], str]:
        """Read the logs of its pods."""
        del state
        from .kubernetes_run import job_logs

        made, pattern = self.engine["settings"], self.engine["progress_pattern"]

        def read(cluster: Any) -> Answer:
            logs = job_logs(cluster, made, limit, pattern)
            return {"logs": {name: base64.b64encode(content).decode() for name, content in logs.items()}}

        return [self._call("The logs of the job cannot be read from the cluster:", read)], ""

    def _call(self, otherwise: str, read: Callable[[Any], Answer]) -> Answer:
        from .kubernetes_cluster import Cluster, ClusterError

        made = self.engine["settings"]
        try:
            return read(Cluster(*(made[name] for name in ("kubeconfig", "context", "namespace"))))
        except ClusterError as error:
            return {"failed": True, "msg": f"{otherwise} {error}"}

    def end(self, *, check: bool) -> Answer:
        """Do nothing, as `remove` ends a job."""
        del check
        return {"changed": False}


def external_job(plan: Mapping[str, Any], runs_dir: Path, ask: Ask) -> Slurm | Kubernetes:
    """Return the job of a plan with an `engine`."""
    engine = scheduler_of(dict(plan), runs_dir)
    return Slurm(plan, engine, ask) if engine["kind"] == "slurm" else Kubernetes(engine)
