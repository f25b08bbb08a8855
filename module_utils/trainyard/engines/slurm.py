# SPDX-License-Identifier: Apache-2.0
"""Engine `slurm`: a job becomes one sbatch script (sbatch.py), handed to Slurm from a login host.

The script carries the packed source, so that nothing but Slurm need reach the nodes; what it needs of the allocation
(names, addresses, interfaces) it asks there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..failure import first_failure, signal_name
from ..findings import Finding
from ..job import Job
from ..process import RANK_LOG
from . import slurm_fit
from .records import EnginePlan, Source, Where
from .sbatch import SCRIPT, gres_option, script
from .slurm_state import exit_of, nodes_of

STARTS: tuple[str, ...] = ("torchrun", "direct", "mindspore", "mpirun", "msrun", "oneflow")

# Slurm's own limit is 4 MiB (max_script_size of SchedulerParameters); base64 takes a third more than the archive.
MOST_SOURCE = 2 << 20


def plan(
    job: Job, given: Mapping[str, Any], facts: Mapping[str, Any], source: Source, where: Where
) -> tuple[EnginePlan | None, list[Finding]]:
    """Return the job as an sbatch script. `facts` is what library/slurm_info returned."""
    findings = _refused(job)
    if len(source.archive) * 3 // 4 > MOST_SOURCE:
        findings.append(
            Finding(
                "",
                "job_source",
                f"{len(source.archive) * 3 // 4 >> 20} MiB, packed",
                f"at most {MOST_SOURCE >> 20} MiB, as it travels in the sbatch script",
                "keep it on a file system that all nodes have, and name the script by its path in job_command",
            )
        )
    if not where.submit_host:
        findings.append(
            Finding(
                "",
                "job_login_host",
                "no host that submits",
                "a host of the inventory where sbatch is: job_login_host, the group slurm_login, or job_hosts",
                "set job_login_host",
            )
        )
    nodes = int(given.get("job_nodes") or 0) or len(where.hosts)
    gres = gres_option(job, given)
    if job.devices is None and str(given.get("job_gres") or "auto") == "auto":
        # As over ssh: all devices that the nodes have, not the CPU where nobody asked for that.
        gres = slurm_fit.common_gres(facts, str(given.get("job_partition") or ""), job.processes_per_node)
    devices = int(gres.rpartition(":")[2]) if gres.rpartition(":")[2].isdigit() else len(job.devices or ())
    processes = job.processes_per_node or devices or 1
    given = {**given, "job_gres": gres or "none"}
    drafted = EnginePlan(
        engine="slurm",
        job=job,
        job_id=where.job_id,
        created=where.created,
        submit_host=where.submit_host,
        nodes=nodes,
        processes_per_node=processes,
        job_dir=f"{given.get('job_folder') or where.state_dir}/jobs/{where.job_id}",
        rank_log="worker_{rank}.log" if job.launcher in ("mindspore", "msrun") else RANK_LOG,
        files={},
        settings={"shared": bool(given.get("job_folder")), "user": where.user},
    )
    findings += slurm_fit.findings(drafted, given, facts, gres, where, where.known)
    return with_script(drafted, given, source), findings


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


def with_script(drafted: EnginePlan, given: Mapping[str, Any], source: Source) -> EnginePlan:
    """Return the plan with the sbatch script that it becomes."""
    return replace(drafted, files={SCRIPT: script(drafted, given, source.archive)})


def _refused(job: Job) -> list[Finding]:
    """Find what a job file may ask for and Slurm's nodes are not given."""
    findings = []
    if job.secret_env and not job.tls:
        findings.append(
            Finding(
                "",
                "job_secret_env",
                ", ".join(job.secret_env),
                "no secrets: Slurm keeps the script of a job, and hands its environment from host to host",
                "let the program read them from a file of the user on a file system that all nodes have",
            )
        )
    if job.tls:
        findings.append(
            Finding(
                "",
                "job_tls",
                "true with job_launcher: slurm",
                "processes without TLS: certificates of a job reach its nodes over ssh only",
                "leave job_tls out, or use job_launcher: mindspore",
            )
        )
    if job.launcher == "oneflow" and job.oneflow_style == "address_list":
        findings.append(
            Finding(
                "",
                "job_oneflow_style",
                "address_list with job_launcher: slurm",
                "launch: addresses are known in the allocation only",
                "leave job_oneflow_style out",
            )
        )
    if job.recovery:
        findings.append(
            Finding(
                "",
                "job_recovery",
                "true with job_launcher: slurm",
                "restarts of the whole job: Slurm does not start single processes again",
                "leave job_recovery out; job_max_restarts requeues the job",
            )
        )
    return findings
