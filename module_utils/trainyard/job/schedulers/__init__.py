# SPDX-License-Identifier: Apache-2.0
"""Schedulers: who places the ranks of a job (job_scheduler).

`ssh` is trainyard itself, on hosts of the inventory; Slurm and Kubernetes are handed the job.

A scheduler module has
    LAUNCHERS                                   what may start the ranks inside (job_launcher)
    SCRIPTS_ELSEWHERE                           True where a job without job_source finds its scripts there, in an image
    plan(job, facts, source, where)             the plan (records.Plan) and findings; `facts` describe the nodes (ssh)
                                                or the cluster (slurm, kubernetes)
    complete(plan, state) -> state              but ssh: JobState with nodes and failure, as its tools do not say them
A new scheduler is a new file and a line in SCHEDULERS, and how the controller talks to it: one more class beside
Slurm and Kubernetes of trainyard_controller/scheduler_clients.py.

How a job is (JobState, a plain dictionary; times are seconds since the epoch): what ssh.state makes of the nodes'
answers, and what the modules of another scheduler return:
    state       pending, running, succeeded, failed, timed_out, stopped or lost
    engine_id   the scheduler's own name of it, such as the number of a Slurm job; "" when there is none yet
    reason      the scheduler's own words: why it is pending, or ended; ""
    started, finished, elapsed_s, ranks_running, metrics, stopped_on   as in summary.json
    nodes       [{host, state (running, ended, unreachable), why, ranks: [..],
                processes: [{name, ranks, log, exit_code, signal, ...}]}]
    failure     as in summary.json, or None; kind `engine` where no rank is known to have failed: {kind, host, reason}
    restarts    as in summary.json
    checkpoints, goodput, kernel   as in summary.json; ssh only
    events      as in summary.json
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ...findings.findings import Finding
from ..file import specification as jobs
from ..file.command import scripts
from ..file.job import Job
from ..file.launcher_programs import meant
from ..file.start_scripts import code_in, waits_for_nothing
from ..plan import nested_launchers
from ..plan.plan import JobPlan, source_findings
from ..run.progress import strict
from . import slurm, ssh
from .kubernetes import scheduler as kubernetes
from .records import Plan, Source, SubmittedPlan, Where


class Scheduler(Protocol):
    """What a scheduler module offers."""

    LAUNCHERS: tuple[str, ...]

    def plan(self, job: Job, facts: Any, source: Source, where: Where) -> tuple[Plan | None, list[Finding]]:
        """Return what is to be started or submitted, or why that would come to nothing."""


# Those that are handed a job.
EXTERNAL = {"kubernetes": kubernetes, "slurm": slurm}
SCHEDULERS: Mapping[str, Scheduler] = {**EXTERNAL, "ssh": ssh}


def parse(given: Mapping[str, Any]) -> tuple[Job | None, list[Finding]]:
    """Turn the `job_*` variables into a Job, or say everything that is wrong with them."""
    findings = who_runs(given)
    job, wrong = jobs.parse(given)
    return (None if findings else job), findings + wrong


def who_runs(given: Mapping[str, Any]) -> list[Finding]:
    """Find a job_scheduler that is none, and a job_launcher that it does not have."""
    scheduler, launcher = str(given.get("job_scheduler") or "ssh"), str(given.get("job_launcher") or "torchrun")
    if scheduler not in SCHEDULERS:
        likely = meant(scheduler, list(SCHEDULERS))
        do = f"did you mean {likely}?" if likely else "choose one of these"
        return [Finding("job_scheduler", repr(scheduler), "one of " + ", ".join(SCHEDULERS), do)]
    known = SCHEDULERS[scheduler].LAUNCHERS
    if launcher in known:
        return []
    found, do = repr(launcher), "choose one of these"
    if scheduler != "ssh":
        found += f" with job_scheduler: {scheduler}"
    likely = meant(launcher, [*known, *SCHEDULERS])
    if likely in SCHEDULERS:
        do = f"write job_scheduler: {likely} and job_launcher: torchrun"
    elif launcher in ssh.LAUNCHERS:
        do += ", or job_scheduler: ssh"
    elif likely:
        do = f"did you mean {likely}?"
    return [Finding("job_launcher", found, "one of " + ", ".join(sorted(known)), do)]


def plan(job: Job, facts: Any, source: Source, where: Where) -> tuple[Plan | None, list[Finding]]:
    """Plan a job for its scheduler: the plan, None where there can be none, and all that is wrong with it."""
    scheduler = SCHEDULERS[job.scheduler]
    elsewhere = not job.source and getattr(scheduler, "SCRIPTS_ELSEWHERE", False)
    # A folder that could not be read says nothing of what it lacks.
    findings = list(source.findings) or ([] if elsewhere else source_findings(job, source.files, source.left_out))
    if job.scheduler != "ssh":
        findings += not_waited_for(job.command, source)
    made, wrong = scheduler.plan(job, facts, source, where)
    if made is not None:
        findings += nested_launchers.findings(job, source.text, *_size(made))
    return made, findings + wrong


def _size(made: Plan) -> tuple[int, int]:
    """Return how many nodes a planned job has, and how many processes each node has at most."""
    if isinstance(made, JobPlan):
        return len(made.placement.nodes), max(node.rank_count for node in made.placement.nodes)
    return (made.nodes, made.ranks_per_node) if isinstance(made, SubmittedPlan) else (1, 1)


def not_waited_for(command: Sequence[str], source: Source) -> list[Finding]:
    """Find start scripts that leave processes in the background, which a scheduler ends with the script."""
    texts = {name.removeprefix("./"): source.text(name.removeprefix("./")) for name in scripts(command)}
    texts["a line of shell"] = "\n".join(code_in(command))
    return [
        Finding(
            "job_command",
            f"{name}, which waits for none of the processes that it puts in the background",
            "a script that lasts as long as they do: the scheduler ends them with it",
            "append `wait` to it",
        )
        for name, text in texts.items()
        if not name.endswith(".py") and waits_for_nothing(text)
    ]


def summarize(plan: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
    """Build summary.json (docs/summary.md) from plan.json and the JobState."""
    # Where trainyard itself places the ranks, the plan names no engine.
    engine = plan.get("engine")
    if engine:
        state = EXTERNAL[engine["kind"]].complete(plan, state)
    started, finished = state.get("started"), state.get("finished")
    summary: dict[str, Any] = {
        "job_id": plan["job_id"],
        "job_name": plan["job_name"],
        "launcher": plan["launcher"],
        "rank_log": plan["rank_log"],
        "state": state["state"],
        "world_size": plan["world_size"],
        "started": started,
        "finished": finished,
        "elapsed_s": round(finished - started, 2) if started and finished else state.get("elapsed_s"),
        "ranks_running": state.get("ranks_running", 0) if state["state"] == "running" else 0,
        "metrics": strict(state.get("metrics") or {}),
        "loss_not_a_number": state.get("loss_not_a_number"),
        "checkpoints": state.get("checkpoints"),
        "goodput": state.get("goodput"),
        "slow_ranks": list(state.get("slow_ranks") or ()),
        "apart": state.get("apart"),
        "failure": state.get("failure"),
        "kernel": list(state.get("kernel") or ()),
        "restarts": list(state.get("restarts") or ()),
        "max_restarts": plan["max_restarts"],
        "events": list(state.get("events") or ()),
        "stopped_on": state.get("stopped_on"),
        # What NCCL said stands in the logs.
        "nccl": None,
    }
    if engine:
        summary["engine"] = {
            "kind": engine["kind"],
            "id": str(state.get("engine_id") or ""),
            "reason": str(state.get("reason") or ""),
            "submit_host": engine["submit_host"],
        }
    summary["nodes"] = [
        {
            "host": node["host"],
            "node_rank": number,
            "state": node["state"],
            "why": node.get("why", ""),
            "ranks": list(node["ranks"]),
            "processes": list(node["processes"]),
            "carried": node.get("carried"),
            **{key: node[key] for key in ("unwritten", "role") if node.get(key)},
        }
        for number, node in enumerate(state.get("nodes") or ())
    ]
    return summary
