# SPDX-License-Identifier: Apache-2.0
"""Scheduler `slurm`: a job becomes one sbatch script, submitted from a login host, and its hosts run it as over ssh."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...base.findings import Finding
from ...slurm.slurm_state import exit_of
from ...slurm.slurm_words import number
from ..file.given_environment import node_environment
from ..file.job import Job
from ..file.mindspore_tls import PASSWORD_VARIABLES
from ..placement.process import RANK_LOG
from ..plan.nested_launchers import one_copy_text
from ..record.folder_layout import node_dir
from ..run.logs.failures import signal_name
from . import slurm_fit
from .records import Source, SubmittedPlan, Where
from .sbatch import SCRIPT, gres_option, script

LAUNCHERS: tuple[str, ...] = ("torchrun", "direct", "mindspore", "mpirun", "msrun", "oneflow")

# Largest packed source in bytes: Slurm limits a script to 4 MiB (max_script_size), and base64 adds a third.
MAX_SOURCE = 2 << 20

# An entry of restarts.
REQUEUED = {"elapsed_s": None, "reason": "Slurm requeued the job", "restarted": "the whole job", "failure": None}
# Why Slurm itself ends a job that runs, by its state.
_BY_SLURM = {
    "TIMEOUT": "the time of the partition, or of --time in job_sbatch_options, was up",
    "DEADLINE": "its --deadline had come",
    "PREEMPTED": "another job needed its nodes",
}
# The exit status of templates/slurm/job.sbatch.j2 where mktemp fails (EX_CANTCREAT).
_NO_ROOM = 73
_CHECKED = "Slurm chooses the nodes; these check themselves and plan, as over ssh, before any rank starts"


def plan(
    job: Job, facts: Mapping[str, Any], source: Source, where: Where
) -> tuple[SubmittedPlan | None, list[Finding]]:
    """Return the job as an sbatch script. `facts` are those of slurm_facts.probe."""
    action = "keep it on a file system that all nodes have, and name the script by its path in job_command"
    findings = [
        *_unsupported(job),
        *source.too_large(MAX_SOURCE, ", as it is in the sbatch script", action),
        *_host_findings(job, where),
    ]
    wrong = _node_env(where, facts)
    gres = gres_option(job)
    if job.devices is None and job.slurm.gres == "auto":
        # As over ssh, auto means all devices of the nodes.
        gres = slurm_fit.common_gres(facts, job.slurm.partition, None if job.one_copy else job.ranks_per_node)
    count = number(gres.rpartition(":")[2])
    devices = len(job.devices or ()) if count is None else count
    job = replace(job, slurm=replace(job.slurm, gres=gres or "none"))
    drafted = SubmittedPlan(
        job=job,
        job_id=where.job_id,
        created=where.created,
        submit_host=where.submit_host,
        nodes=(job.nodes or max(len(where.hosts) - job.restarts.spares, 0)) + job.restarts.spares,
        ranks_per_node=job.ranks_per_node or devices or 1,
        job_dir=node_dir(f"{job.slurm.folder or where.state_dir}/jobs/{where.job_id}"),
        rank_log="worker_{rank}.log" if job.launcher in ("mindspore", "msrun") else RANK_LOG,
        settings={
            "shared": bool(job.slurm.folder),
            "user": where.user,
            **({"secrets": f"{job.slurm.folder}/secrets-{where.job_id}.json"} if _secrets(job) else {}),
        },
        notes=(_CHECKED, *([one_copy_text(job.one_copy)] if job.one_copy else ())),
    )
    findings += [*wrong, *slurm_fit.findings(drafted, facts, gres, where)]
    limit_min = slurm_fit.time_limit(facts, job.slurm.partition)
    return replace(drafted, templates={SCRIPT: script(drafted, limit_min)}), findings


def _host_findings(job: Job, where: Where) -> list[Finding]:
    findings = []
    if not where.submit_host:
        expected = "a host of the inventory where sbatch is: job_login_host, the group slurm_login, or job_hosts"
        findings.append(Finding("job_login_host", "no login host", expected, "set job_login_host"))
    elif where.submit_host not in (*where.known, "localhost"):
        found = f"{where.submit_host}, which is not in the inventory"
        action = "add it to the inventory, or correct job_login_host"
        findings.append(Finding("job_login_host", found, "a host of the inventory where sbatch is", action))
    if not (job.nodes or where.hosts):
        found = f"0, and no host of the inventory in {job.hosts}"
        findings.append(Finding("job_nodes", found, "the number of nodes", "set job_nodes"))
    return findings


def complete(plan: Mapping[str, Any], state: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the state of a job that its hosts have not planned yet, or could not."""
    del plan
    failure: dict[str, Any] | None = None
    if state["state"] in ("failed", "lost"):
        failure = {"kind": "engine", "host": "", "reason": _slurm_reason(state)}
    own = "running" if state["state"] in ("pending", "running") else "ended"
    nodes = [{"host": host, "state": own, "ranks": [], "processes": []} for host in state.get("hosts") or ()]
    return {**state, "nodes": nodes, "failure": failure, "restarts": [REQUEUED] * int(state.get("requeued") or 0)}


def with_end(answers: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answers of nodes where Slurm itself ended the job, which their monitors only know as a stop."""
    why = _BY_SLURM.get(str(state.get("slurm_state")))
    if why is None:
        return dict(answers)
    failure = {"kind": "engine", "host": "", "reason": f"{_slurm_reason(state)}: {why}"}
    ended = {"state": "failed", "failure": failure}

    def named(record: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        end = (record or {}).get("end") or {}
        return {**(record or {}), "end": {**end, **ended}} if end.get("state") == "stopped" else record

    return {
        host: {**answer, **{name: named(answer[name]) for name in ("monitor", "cluster") if name in answer}}
        for host, answer in answers.items()
    }


def _slurm_reason(state: Mapping[str, Any]) -> str:
    code, number = exit_of(str(state.get("exit_code") or ""))
    reason = str(state.get("slurm_state") or "Slurm has forgotten the job")
    if state.get("reason"):
        reason += f" ({state['reason']})"
    if code:
        reason += f", exit code {code}"
    if code == _NO_ROOM:
        # The script has no log then.
        reason += ": the first host could make no folder; look for room in its TMPDIR or /tmp (df, df -i)"
    return f"{reason}, killed by {signal_name(number)}" if number else reason


def _node_env(where: Where, facts: Mapping[str, Any]) -> list[Finding]:
    """Check job_node_env of all hosts that have it; their names must be those in Slurm."""
    known = {node["NodeName"] for node in facts.get("nodes") or ()}
    action = "name the host so in the inventory, or remove its job_node_env"
    findings = []
    for host, value in where.node_env.items():
        env, wrong = node_environment(value, host)
        findings += wrong
        if env and known and host not in known:
            found, expected = "variables for a host that Slurm does not know", "a name of scontrol show nodes"
            findings.append(Finding("job_node_env", found, expected, action, host=host))
    return findings


def _secrets(job: Job) -> dict[str, str]:
    """Return the variables of a job that have secrets, with what may be shown of them."""
    # With TLS, its passwords are among the secrets.
    names = [name for name in job.secret_env if not job.tls or name not in PASSWORD_VARIABLES.values()]
    receivers = [str(each["to"]) for each in job.events.receivers]
    found = {
        "job_secret_env": ", ".join(names),
        "job_tls": "true" if job.tls else "",
        "job_events": ", ".join(receivers),
        "job_registry_auth": "a login" if job.image and job.image.has_login else "",
    }
    return {name: text for name, text in found.items() if text}


def _unsupported(job: Job) -> list[Finding]:
    findings = []
    for name, found in {} if job.slurm.folder else _secrets(job).items():
        expected = "job_folder, where the hosts find what is secret: Slurm stores the script of a job"
        findings.append(Finding(name, found, expected, "set job_folder to a folder that all nodes share"))
    if job.image and job.image.copy_from:
        expected = "nothing: each node of the allocation brings the image itself"
        findings.append(Finding("job_image_copy", job.image.copy_from, expected, "leave job_image_copy out"))
    return findings
