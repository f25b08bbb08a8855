# SPDX-License-Identifier: Apache-2.0
"""Schedulers, which place the ranks of a job (job_scheduler).

`ssh` is trainyard itself, on hosts of the inventory. Slurm and Kubernetes are external schedulers.

A scheduler module has
    LAUNCHERS                           the launchers that it supports (job_launcher)
    SCRIPTS_ELSEWHERE                   True if a job without job_source has its scripts in an image
    plan(job, facts, source, where)     the plan (Plan) and findings; `facts` are those of nodes (ssh) or of
                                        the cluster (slurm, kubernetes)
    complete(plan, state) -> state      external only: the JobState with nodes and failure
To add a scheduler, add a module, a line in SCHEDULERS, and a class beside Slurm and Kubernetes in
trainyard_controller/job/schedulers/scheduler_clients.py.

JobState, the state of a job, is a plain dictionary. Times are seconds since the epoch.
    state       pending, running, succeeded, failed, timed_out, stopped or lost
    engine_id   the scheduler's name of the job, such as its number in Slurm, or ""
    reason      the scheduler's own reason why it is pending or has ended, or ""
    started, finished, elapsed_s, ranks_running, metrics, stopped_on   as in summary.json
    nodes       [{host, state (running, ended, unreachable), why, ranks: [..],
                processes: [{name, ranks, log, exit_code, signal, ...}]}]
    failure     as in summary.json, or None; {kind: engine, host, reason} if no rank is known to have failed
    restarts, events   as in summary.json
    checkpoints, goodput, kernel   as in summary.json; only of monitors
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, Union

from ...base.findings import Finding
from ..file import specification
from ..file.job import Job
from ..file.job_command import scripts
from ..file.launcher_programs import meant
from ..file.start_scripts import WAIT, code_in, waits_for_nothing
from ..plan import fewer_nodes, nested_launchers
from ..plan.plan import JobPlan, source_findings
from ..run.logs.progress import strict
from . import own_program, slurm, ssh
from .kubernetes import scheduler as kubernetes
from .records import Source, SubmittedPlan, Where

# A planned job.
Plan = Union[JobPlan, SubmittedPlan]


class Scheduler(Protocol):
    """The interface of a scheduler module."""

    LAUNCHERS: tuple[str, ...]

    def plan(self, job: Job, facts: Any, source: Source, where: Where) -> tuple[Plan | None, list[Finding]]:
        """Return the plan of the job, and findings."""


# The schedulers beside trainyard itself.
EXTERNAL = {"kubernetes": kubernetes, "slurm": slurm}
SCHEDULERS: Mapping[str, Scheduler] = {**EXTERNAL, "ssh": ssh}


def parse(variables: Mapping[str, Any]) -> tuple[Job | None, list[Finding]]:
    """Parse the `job_*` variables into a Job; None and all findings if there are errors."""
    findings = choice_findings(variables)
    job, wrong = specification.parse(variables)
    return (None if findings else job), findings + wrong


def choice_findings(variables: Mapping[str, Any]) -> list[Finding]:
    """Find an unknown job_scheduler, and a job_launcher that it does not support."""
    scheduler, launcher = str(variables.get("job_scheduler") or "ssh"), str(variables.get("job_launcher") or "torchrun")
    if scheduler not in SCHEDULERS:
        likely = meant(scheduler, list(SCHEDULERS))
        action = f"did you mean {likely}?" if likely else "choose one of these"
        return [Finding("job_scheduler", repr(scheduler), f"one of {', '.join(SCHEDULERS)}", action)]
    launchers = SCHEDULERS[scheduler].LAUNCHERS
    if launcher in launchers:
        return []
    likely = meant(launcher, [*launchers, *SCHEDULERS])
    if likely in SCHEDULERS:
        action = f"write job_scheduler: {likely} and job_launcher: torchrun"
    elif launcher in ssh.LAUNCHERS:
        action = "choose one of these, or job_scheduler: ssh"
    else:
        action = f"did you mean {likely}?" if likely else "choose one of these"
    found = repr(launcher) if scheduler == "ssh" else f"{launcher!r} with job_scheduler: {scheduler}"
    return [Finding("job_launcher", found, f"one of {', '.join(sorted(launchers))}", action)]


def plan(job: Job, facts: Any, source: Source, where: Where) -> tuple[Plan | None, list[Finding]]:
    """Plan a job for its scheduler: the plan, or None, and all findings."""
    scheduler = SCHEDULERS[job.scheduler]
    elsewhere = not job.source and (source.files is None or getattr(scheduler, "SCRIPTS_ELSEWHERE", False))
    # A folder that could not be read has no list of files to check.
    findings = list(source.findings) or ([] if elsewhere else source_findings(job, source.files, source.left_out))
    # A program that is not there is one finding; msrun starts scripts with Python.
    if not findings and job.launcher != "msrun":
        findings = own_program.findings(job.command, source)
    if job.scheduler != "ssh":
        findings += not_waited_for(job.command, source)
    if job.scheduler != "kubernetes":
        # There the job says how many devices a pod has.
        job = nested_launchers.with_one_copy(job, source.text)
    made, wrong = scheduler.plan(job, facts, source, where)
    if made is not None:
        nodes = len(made.placement.nodes) if isinstance(made, JobPlan) else made.nodes
        findings += fewer_nodes.findings(job, source.text, nodes)
    return made, findings + wrong


def not_waited_for(command: Sequence[str], source: Source) -> list[Finding]:
    """Find start scripts that do not wait for background processes, which end with the script."""
    names = [name.removeprefix("./") for name in scripts(command) if not name.endswith(".py")]
    texts = {**{name: source.text(name) for name in names}, "a line of shell": "\n".join(code_in(command))}
    expected = "a script that waits for them, as the scheduler ends them with it"
    found = [
        f"{name}, which does not wait for its background processes" for name in texts if waits_for_nothing(texts[name])
    ]
    return [Finding("job_command", each, expected, f"append {WAIT} to it") for each in found]


def summarize(plan: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
    """Build summary.json (docs/summary.md) from plan.json and the JobState."""
    # Only plans for external schedulers have an engine.
    engine = plan.get("engine")
    # Nodes of an earlier run say nothing about one that Slurm has put into the queue again.
    by_nodes = bool(plan["nodes"]) and "nodes" in state
    if engine and not by_nodes:
        state = EXTERNAL[engine["kind"]].complete(plan, state)
    started, finished = state.get("started"), state.get("finished")
    summary: dict[str, Any] = {
        "job_id": plan["job_id"],
        "job_name": plan["job_name"],
        "launcher": plan["launcher"],
        "rank_log": plan["rank_log"],
        "state": state["state"],
        "world_size": state.get("world_size") or plan["world_size"],
        "world_sizes": list(state.get("world_sizes") or ()),
        "started": started,
        "finished": finished,
        "elapsed_s": round(finished - started, 2) if started and finished else state.get("elapsed_s"),
        "ranks_running": state.get("ranks_running", 0) if state["state"] == "running" else 0,
        "metrics": strict(state.get("metrics") or {}),
        **{
            name: state.get(name)
            for name in (
                "loss_not_a_number",
                "checkpoints",
                "goodput",
                "left_s",
                "apart",
                "failure",
                "stacks",
                "saving",
                "takeover",
                "moved_rendezvous",
                "witness_lost",
            )
        },
        **{name: list(state.get(name) or ()) for name in ("slow_ranks", "kernel", "restarts", "events")},
        "max_restarts": plan["max_restarts"],
        "stopped_on": state.get("stopped_on"),
        # NCCL's messages are in the logs.
        "nccl": None,
    }
    if engine:
        summary["engine"] = {
            "kind": engine["kind"],
            "id": str(state.get("engine_id") or engine.get("id") or ""),
            "reason": str(state.get("reason") or ""),
            "submit_host": engine["submit_host"],
        }
        if by_nodes:
            summary["restarts"] = [slurm.REQUEUED] * int(plan.get("run") or 0) + summary["restarts"]
    summary["nodes"] = [
        {
            "host": node["host"],
            "node_rank": number,
            "state": node["state"],
            "why": node.get("why", ""),
            "ranks": list(node["ranks"]),
            "processes": list(node["processes"]),
            "carried": node.get("carried"),
            **{key: node[key] for key in ("unwritten", "lost_logs", "role") if node.get(key)},
        }
        for number, node in enumerate(state.get("nodes") or ())
    ]
    return summary
