# SPDX-License-Identifier: Apache-2.0
"""Engines: Slurm and Kubernetes, which place and start the ranks of a job where trainyard would do it over ssh.

An engine module has
    STARTS                                      what may start the ranks inside (job_engine), the default first
    SCRIPTS_ELSEWHERE                           True where a job without job_source finds its scripts there, in an image
    default_start(given) -> str                 job_engine by default, only where it is not the first of STARTS
    plan(job, given, facts, source, where)      what is submitted (EnginePlan) and findings
    complete(plan, state) -> state              EngineState with nodes and failure, as job_report wants it
A new engine is a new file and a line in ENGINES, tasks in roles/job/tasks/NAME and modules for these.

What the modules of an engine return of a job (EngineState, a plain dictionary; times are seconds since the epoch):
    state       pending, running, succeeded, failed, timed_out, stopped or lost
    engine_id   the engine's own name of it, such as the number of a Slurm job; "" when there is none yet
    reason      the engine's own words: why it is pending, or ended; ""
    started, finished, ranks_running, metrics   as in summary.json
    nodes       [{host, state (running, ended), ranks: [..], processes: [{name, ranks, log, exit_code, signal, ...}]}]
    failure     as in summary.json, or None; kind `engine` where no rank is known to have failed: {kind, host, reason}
    restarts    as in summary.json
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

from .. import job as jobs
from ..findings import Finding
from ..job import Job
from ..progress import strict
from ..starters import meant
from . import kubernetes, slurm
from .records import EnginePlan, Source, Where

STATES = ("pending", "running", "succeeded", "failed", "timed_out", "stopped", "lost")
OVER = frozenset(STATES) - {"pending", "running"}


class Engine(Protocol):
    """What an engine module offers."""

    STARTS: tuple[str, ...]

    def plan(
        self,
        job: Job,
        given: Mapping[str, Any],
        facts: Mapping[str, Any],
        source: Source,
        where: Where,
    ) -> tuple[EnginePlan | None, list[Finding]]:
        """Return what is to be submitted, or why that would come to nothing."""

    def complete(self, plan: Mapping[str, Any], state: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the state with `nodes` and `failure`, where the engine's module could not say them alone."""


ENGINES: Mapping[str, Engine] = {"kubernetes": kubernetes, "slurm": slurm}


def parse(given: Mapping[str, Any]) -> tuple[Job | None, list[Finding]]:
    """Turn the `job_*` variables of a job for an engine into a Job, whose launcher starts the ranks inside."""
    name = str(given["job_launcher"])
    engine = ENGINES[name]
    choose = getattr(engine, "default_start", None)
    starts = str(given.get("job_engine") or (choose(given) if choose else engine.STARTS[0]))
    findings = []
    if starts not in engine.STARTS:
        findings.append(
            Finding(
                "",
                "job_engine",
                f"{starts!r} with job_launcher: {name}",
                "one of " + ", ".join(engine.STARTS),
                meant(starts, engine.STARTS),
            )
        )
        starts = engine.STARTS[0]
    job, wrong = jobs.parse({**given, "job_launcher": starts}, engine.STARTS)
    findings += [replace(finding, **_engines_words(finding)) for finding in wrong]
    return (None if findings else job), findings


def _engines_words(finding: Finding) -> dict[str, str]:
    """Return what a finding says with the variable that chooses what starts the ranks inside."""
    return {name: text.replace("job_launcher: ", "job_engine: ") for name, text in finding.as_dict().items()}


def summarize(plan: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
    """Build summary.json (docs/summary.md) from the plan and what the engine's module said."""
    started, finished = state.get("started"), state.get("finished")
    engine = ENGINES[plan["engine"]["kind"]]
    state = engine.complete(plan, state)
    nodes = [
        {
            "host": node["host"],
            "node_rank": number,
            "state": node["state"],
            "why": "",
            "ranks": list(node["ranks"]),
            "processes": list(node["processes"]),
        }
        for number, node in enumerate(state.get("nodes") or ())
    ]
    return {
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
        "loss_not_a_number": None,
        "failure": state.get("failure"),
        "restarts": list(state.get("restarts") or ()),
        "max_restarts": plan["max_restarts"],
        "stopped_on": None,
        "engine": {
            "kind": plan["engine"]["kind"],
            "id": str(state.get("engine_id") or ""),
            "reason": str(state.get("reason") or ""),
            "submit_host": plan["engine"]["submit_host"],
        },
        "nodes": nodes,
    }
