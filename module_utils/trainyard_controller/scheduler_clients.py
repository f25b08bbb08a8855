# SPDX-License-Identifier: Apache-2.0
"""The schedulers that are handed a job, as the controller talks to them: probe, submit, state, logs, end.

Slurm is asked on its login host, by the fan-out; Kubernetes from here, through its client.
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
# sbatch may wait for a busy controller; a job that is ended has 90 s for it, and the commands that ask have theirs.
_SUBMIT_S, _END_S = 90.0, 300.0
_LOGS_S = 300.0


class Ask(Protocol):
    """Asks hosts a question of the agent, each with arguments of its own; returns the answers by host."""

    def __call__(
        self, question: str, own: Mapping[str, Mapping[str, Any]], *, limit_s: float = 120.0
    ) -> Mapping[str, Answer]:
        """Ask, and wait for each answer `limit_s` seconds."""


def probe_slurm(host: str, about: Mapping[str, Any], ask: Ask, limit: str = "") -> tuple[Answer, list[Finding]]:
    """Ask the host that submits, where there is one, what the cluster is. `limit` is what --limit was."""
    if not host:
        return {}, []
    answer = ask("slurm_probe", {host: about})[host]
    return answer.get("facts") or {}, join([], {host: answer}, limit)


def probe_kubernetes(job: Job) -> tuple[Answer, list[Finding]]:
    """Ask the cluster; `refused` in the facts says that it cannot run the job, and so needs no plan."""
    # Late: the client is there only where somebody has installed it.
    from .kubernetes_cluster import Cluster, ClusterError, preflight

    facts: Answer = {}
    findings = []
    try:
        cluster = Cluster(job.kubernetes.kubeconfig, job.kubernetes.context, job.kubernetes.namespace)
        facts = {"version": cluster.version(), "server": cluster.server, "namespace": cluster.namespace}
        # What is wrong with the job file is the plan's to say.
        chosen, _ = settings.parse(job)
        if chosen is not None:
            needs = kubernetes.needs(chosen, recovery=job.restarts.recovery)
            made = kubernetes.made_beside(chosen, secrets=bool(job.secret_env))
            findings = preflight(cluster, chosen.resource, needs, made)
    except ClusterError as error:
        findings = [error.finding]
    return {**facts, "refused": bool(findings)}, findings


class ExternalJob(Protocol):
    """A job that a scheduler was handed. What it does not answer has no `state` (`logs`, `engine_id`), but `msg`."""

    def submit(self, run_dir: Path, secret_env: Mapping[str, str], secret_files: Mapping[str, str]) -> Answer:
        """Hand it over; returns `engine_id`, the scheduler's name of it. Secret files are base64, by path."""

    def state(self, *, waits: bool) -> Answer:
        """Return the JobState, with `line` and `told` for a watcher; `waits` for its end."""

    def logs(self, state: Mapping[str, Any], limit: int) -> tuple[list[Answer], str]:
        """Return what has `logs` of it, by name in base64, and how its tasks ended (`exits`); and a warning, or ""."""

    def end(self, *, check: bool) -> Answer:
        """End it; returns `changed`."""


@dataclass(frozen=True)
class Slurm:
    """A job of Slurm; `plan` and `engine` are those of the run (run_folder.scheduler_of)."""

    plan: Mapping[str, Any]
    engine: Mapping[str, Any]
    ask: Ask

    def _asked(self, question: str, limit_s: float = 120.0, **arguments: Any) -> Answer:
        host = self.engine["submit_host"]
        return self.ask(question, {host: {"user": self.engine["settings"]["user"], **arguments}}, limit_s=limit_s)[host]

    def submit(self, run_dir: Path, secret_env: Mapping[str, str], secret_files: Mapping[str, str]) -> Answer:
        """Hand the script to sbatch; a plan with secrets is refused before."""
        del secret_env, secret_files
        return self._asked("slurm_submit", _SUBMIT_S, script=(run_dir / SCRIPT).read_text())

    def state(self, *, waits: bool) -> Answer:
        """Ask slurmctld, else the accounting, else what the job left itself."""
        del waits
        named = {name: self.engine[name] for name in ("engine_id", "world_size", "rank_log", "progress_pattern")}
        host, shared = self.engine["submit_host"], self.engine["settings"]["shared"]
        return self._asked("slurm_state", job_dir=self.plan["job_dir"], login_host=host, shared=shared, **named)

    def logs(self, state: Mapping[str, Any], limit: int) -> tuple[list[Answer], str]:
        """Bring them from the nodes that have some; a node that is lost is what the report tells of."""
        about = {"job_dir": self.plan["job_dir"], "log_limit": limit}
        answers = self.ask("slurm_logs", dict.fromkeys(state["log_hosts"], about), limit_s=_LOGS_S)
        return log_names.kept_of_slurm(self.plan, state, answers)

    def end(self, *, check: bool) -> Answer:
        """Cancel it, and wait until it is over."""
        return self._asked("slurm_end", _END_S, engine_id=self.engine["engine_id"], check=check)


@dataclass(frozen=True)
class Kubernetes:
    """A job in a cluster; `engine` is that of the run (run_folder.scheduler_of)."""

    engine: Mapping[str, Any]

    def submit(self, run_dir: Path, secret_env: Mapping[str, str], secret_files: Mapping[str, str]) -> Answer:
        """Make its Secrets and what its manifest says; what was made is removed where the cluster does not take all."""
        from .kubernetes_run import submit

        made, manifest = self.engine["settings"], run_dir / "manifest.yml"
        wanted = secrets(made["name"], secret_env, secret_files)
        wanted += [each for each in yaml.safe_load_all(manifest.read_text()) if each]

        def make(cluster: Any) -> Answer:
            submit(cluster, wanted)
            return {"engine_id": f"{made['resource']} {made['namespace']}/{made['name']}"}

        refused = f"The cluster did not take job {run_dir.name}; what was made of it was removed."
        return self._asked(f"{refused} What was applied: {manifest}.", make)

    def state(self, *, waits: bool) -> Answer:
        """Read the job's pods."""
        from .kubernetes_run import job_state

        made, pattern = self.engine["settings"], self.engine["progress_pattern"]
        return self._asked(
            "The cluster does not say how the job is:", lambda cluster: job_state(cluster, made, pattern, waits)
        )

    def remove(self, only: str = "") -> Answer:
        """Remove all that it is in the cluster, or its objects of one kind; returns `changed`."""
        from .kubernetes_run import remove

        def go(cluster: Any) -> Answer:
            remove(cluster, self.engine["settings"], only)
            return {"changed": True}

        return self._asked("What the job is in the cluster could not be removed:", go)

    def after_removal(self, before: Mapping[str, Any]) -> Answer:
        """Return the state of a job that was removed, with what it was `before`, and pods that are left."""
        from .kubernetes_run import after_deletion

        made = self.engine["settings"]
        return self._asked(
            "The cluster does not say what is left of the job:", lambda cluster: after_deletion(cluster, made, before)
        )

    def logs(self, state: Mapping[str, Any], limit: int) -> tuple[list[Answer], str]:
        """Read those of its pods."""
        del state
        from .kubernetes_run import job_logs

        made, pattern = self.engine["settings"], self.engine["progress_pattern"]

        def read(cluster: Any) -> Answer:
            logs = job_logs(cluster, made, limit, pattern)
            return {"logs": {name: base64.b64encode(content).decode() for name, content in logs.items()}}

        return [self._asked("The cluster does not say what the job's logs hold:", read)], ""

    def _asked(self, otherwise: str, read: Callable[[Any], Answer]) -> Answer:
        from .kubernetes_cluster import Cluster, ClusterError

        made = self.engine["settings"]
        try:
            return read(Cluster(*(made[name] for name in ("kubeconfig", "context", "namespace"))))
        except ClusterError as error:
            return {"failed": True, "msg": f"{otherwise} {error}"}

    def end(self, *, check: bool) -> Answer:
        """Leave it: a job that ends here is removed, with what it was before."""
        del check
        return {"changed": False}


def external_job(plan: Mapping[str, Any], runs_dir: Path, ask: Ask) -> Slurm | Kubernetes:
    """Return the job of a plan that names its scheduler as `engine`."""
    engine = scheduler_of(dict(plan), runs_dir)
    return Slurm(plan, engine, ask) if engine["kind"] == "slurm" else Kubernetes(engine)
