# SPDX-License-Identifier: Apache-2.0
"""Scheduler `slurm`: a job becomes one sbatch script (sbatch.py, templates/slurm/), handed to Slurm from a login host.

The script carries the packed source, so that nothing but Slurm need reach the nodes; what it needs of the allocation
(names, addresses, interfaces) it asks there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...findings.findings import Finding
from ...slurm.state import exit_of, nodes_of
from ..file.job import Job
from ..file.rank_environment import node_environment
from ..file.tls import PASSWORD_VARIABLES
from ..placement.process import RANK_LOG
from ..run.failure import first_failure, signal_name
from . import slurm_fit
from .records import Source, SubmittedPlan, Where
from .sbatch import SCRIPT, gres_option, script

LAUNCHERS: tuple[str, ...] = ("torchrun", "direct", "mindspore", "mpirun", "msrun", "oneflow")

# Slurm's own limit is 4 MiB (max_script_size of SchedulerParameters); base64 takes a third more than the archive.
MOST_SOURCE = 2 << 20

# Over ssh the whole preflight comes before the start; here nobody knows the nodes by then.
_LOOKED_AT = (
    "looked at when Slurm has chosen the nodes: environment, program, versions of packages, data, room; not looked at: "
    "ssh, proxies, interfaces, scripts outside job_source"
)


def plan(
    job: Job, facts: Mapping[str, Any], source: Source, where: Where
) -> tuple[SubmittedPlan | None, list[Finding]]:
    """Return the job as an sbatch script. `facts` is what slurm_facts.probe returned."""
    findings = _refused(job) + source.too_large(
        MOST_SOURCE,
        ", as it travels in the sbatch script",
        "keep it on a file system that all nodes have, and name the script by its path in job_command",
    )
    if not where.submit_host:
        findings.append(
            Finding(
                "job_login_host",
                "no host that submits",
                "a host of the inventory where sbatch is: job_login_host, the group slurm_login, or job_hosts",
                "set job_login_host",
            )
        )
    elif where.submit_host not in (*where.known, "localhost"):
        findings.append(
            Finding(
                "job_login_host",
                f"{where.submit_host}, which is not in the inventory",
                "a host of the inventory where sbatch is",
                "add it to the inventory, or correct job_login_host",
            )
        )
    nodes = job.nodes or len(where.hosts)
    if not nodes:
        findings.append(
            Finding(
                "job_nodes",
                f"nothing, and no host of the inventory in {job.hosts}",
                "the number of nodes",
                "set job_nodes",
            )
        )
    node_env, wrong = _node_env(where, facts)
    findings += wrong
    gres = gres_option(job)
    if job.devices is None and job.slurm.gres == "auto":
        # As over ssh: all devices that the nodes have, not the CPU where nobody asked for that.
        gres = slurm_fit.common_gres(facts, job.slurm.partition, job.ranks_per_node)
    devices = int(gres.rpartition(":")[2]) if gres.rpartition(":")[2].isdigit() else len(job.devices or ())
    ranks_per_node = job.ranks_per_node or devices or 1
    job = replace(job, slurm=replace(job.slurm, gres=gres or "none"))
    drafted = SubmittedPlan(
        job=job,
        job_id=where.job_id,
        created=where.created,
        submit_host=where.submit_host,
        nodes=nodes,
        ranks_per_node=ranks_per_node,
        job_dir=f"{job.slurm.folder or where.state_dir}/jobs/{where.job_id}",
        rank_log="worker_{rank}.log" if job.launcher in ("mindspore", "msrun") else RANK_LOG,
        settings={"shared": bool(job.slurm.folder), "user": where.user},
        notes=(_LOOKED_AT,),
    )
    findings += slurm_fit.findings(drafted, facts, gres, where, where.known)
    return replace(drafted, templates={SCRIPT: script(drafted, source.base64(), node_env)}), findings


def complete(plan: Mapping[str, Any], state: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the state with the nodes of the allocation, and what failed there first."""
    nodes = nodes_of(plan, state)
    failure: dict[str, Any] | None = None
    if state["state"] in ("failed", "lost"):
        bad = [each for each in state.get("exits") or () if each["exit_code"] or each["signal"]]
        ranks = [each for each in bad if each["rank"] is not None]
        first = first_failure(ranks or bad)
        if first is not None:
            hosted: list[int] = next((node["ranks"] for node in nodes if node["host"] == first["host"]), [])
            failure = {"kind": "exit", **first, "ranks": hosted}
        else:
            code, number = exit_of(str(state.get("exit_code") or ""))
            reason = str(state.get("slurm_state") or "Slurm has forgotten the job")
            if state.get("reason"):
                reason += f" ({state['reason']})"
            if code:
                reason += f", exit code {code}"
            if number:
                reason += f", killed by {signal_name(number)}"
            failure = {"kind": "engine", "host": "", "reason": reason}
    requeued = {"elapsed_s": None, "reason": "Slurm requeued the job", "restarted": "the whole job", "failure": None}
    restarts = [requeued] * int(state.get("requeued") or 0)
    return {**state, "nodes": nodes, "failure": failure, "restarts": restarts}


def _node_env(where: Where, facts: Mapping[str, Any]) -> tuple[dict[str, dict[str, str]], list[Finding]]:
    """Read job_node_env of all hosts that have it, which must have their names from Slurm."""
    slurms = {node["NodeName"] for node in facts.get("nodes") or ()}
    node_env, findings = {}, []
    for host, value in where.node_env.items():
        node_env[host], wrong = node_environment(value, host)
        findings += wrong
        if node_env[host] and slurms and host not in slurms:
            findings.append(
                Finding(
                    "job_node_env",
                    "variables for a host that is no node of Slurm by this name",
                    "the names of Slurm's nodes (scontrol show nodes)",
                    "name the host so in the inventory, or remove its job_node_env",
                    host=host,
                )
            )
    return node_env, findings


def _refused(job: Job) -> list[Finding]:
    """Find what a job file may ask for and Slurm's nodes are not given."""
    findings = []
    # TLS asks for passwords by itself, and is refused as a whole.
    secrets = [name for name in job.secret_env if not job.tls or name not in PASSWORD_VARIABLES.values()]
    if secrets:
        findings.append(
            Finding(
                "job_secret_env",
                ", ".join(secrets),
                "no secrets: Slurm keeps the script of a job, and hands its environment from host to host",
                "let the program read them from a file of the user on a file system that all nodes have",
            )
        )
    if job.tls:
        findings.append(
            Finding(
                "job_tls",
                "true with job_scheduler: slurm",
                "processes without TLS: certificates of a job reach its nodes over ssh only",
                "leave job_tls out, or use job_scheduler: ssh",
            )
        )
    if job.launcher == "oneflow" and job.oneflow_style == "address_list":
        findings.append(
            Finding(
                "job_oneflow_style",
                "address_list with job_scheduler: slurm",
                "launch: addresses are known in the allocation only",
                "leave job_oneflow_style out",
            )
        )
    if job.restarts.recovery:
        findings.append(
            Finding(
                "job_recovery",
                "true with job_scheduler: slurm",
                "restarts of the whole job: Slurm does not start single processes again",
                "leave job_recovery out; job_max_restarts requeues the job",
            )
        )
    return findings
