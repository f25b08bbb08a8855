# SPDX-License-Identifier: Apache-2.0
"""Read the state of a job from its nodes or its scheduler, and collect its logs in the folder of the run."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from ...trainyard.cluster.unreachable import reason
from ...trainyard.job.plan import log_names, spares
from ...trainyard.job.record import run_record
from ...trainyard.job.run.measure import saving
from ...trainyard.job.run.wire.answers import of_job
from ...trainyard.job.schedulers import slurm
from ..runs.outputs import write_outputs
from ..runs.run_folder import note_submitted, write_logs
from ..runs.saved_state import read_record
from .schedulers.scheduler_clients import Answer, Ask, Kubernetes, Slurm, external_job

_LIMIT_S = 300.0


@dataclass(frozen=True)
class Request:
    """How to collect: up to the last `log_limit` bytes of each log.

    `stop` first ends what is left on nodes, and names other processes of `user`, who runs the job. `purpose` is
    __job_asked of roles/job/tasks/main.yml. `check` ends and writes nothing. In a launch, `not_started` has the answers
    of nodes that could not start their part.
    """

    log_limit: int
    purpose: str = "tell"
    stop: bool = False
    check: bool = False
    user: str = ""
    not_started: Mapping[str, Answer] = field(default_factory=dict)


def is_final(run_dir: Path) -> bool:
    """Tell whether the record of a run is final."""
    return run_record.is_final(read_record(run_dir))


def collect(plan: Mapping[str, Any], run_dir: Path, ask: Ask, request: Request) -> Answer:
    """Write the logs to the folder of the run; return `answers` of all hosts without them, or `job_state`.

    Without an answer of the scheduler, the result is `failed` with `msg`. Raises NotWrittenError.
    """
    final = is_final(run_dir)
    if "engine" not in plan:
        return _of_nodes(plan, run_dir, ask, final, request)
    job = external_job(plan, run_dir.parent, ask)
    state = job.state(waits=request.purpose == "end" and not final)
    if "state" not in state or not job.planned(state):
        return _of_scheduler(job, state, run_dir, final, request)
    answer = _of_nodes(job.plan, run_dir, job.ask, final, request)
    if isinstance(job, Kubernetes) and not any(each.get("monitor") for each in answer["answers"].values()):
        # Only the cluster knows how the pods ended.
        return _of_scheduler(job, state, run_dir, final, request)
    if request.purpose != "stop":
        answer["answers"] = slurm.with_end(answer["answers"], state)
    # The ranks had their time to save: nothing is left that a scheduler could end too early.
    ended = job.end(check=request.check) if request.purpose == "stop" else {"changed": False}
    if isinstance(job, Kubernetes):
        ended = _remove(job, run_dir, state, final, request)
    return {**answer, "changed": answer["changed"] or ended["changed"]} if "changed" in ended else _failed(ended)


def _of_nodes(plan: Mapping[str, Any], run_dir: Path, ask: Ask, final: bool, request: Request) -> Answer:
    """Write the logs that the nodes have, and return their answers."""
    shared = {"job_id": plan["job_id"], "job_dir": plan["job_dir"], "stop": request.stop}
    grace_s = saving.grace_s(plan) if request.stop else 0.0
    shared |= {"grace_s": grace_s, "log_limit": request.log_limit, "check": request.check, "user": request.user}
    shared |= {"outputs": plan.get("outputs", []), "outputs_limit": plan.get("outputs_limit_mib", 0) << 20}
    # A duration, because the node's clock may differ.
    shared["age_s"] = time.time() - datetime.strptime(plan["created"], "%Y-%m-%dT%H:%M:%S%z").timestamp()
    # If one node reports another launch of this id, the others may run it, too: nothing is ended on them.
    theirs = request.not_started if any(answer.get("taken") for answer in request.not_started.values()) else {}
    ours = [host for host in spares.all_hosts(plan) if host not in theirs]
    found = ask("collect", dict.fromkeys(ours, shared), limit_s=_LIMIT_S + grace_s) if ours else {}
    answers = {**{host: of_job(plan, answer) for host, answer in found.items()}, **theirs}
    logs, others = log_names.take_logs(plan, answers)
    if not request.check:
        for of_host in logs.values():
            write_logs(run_dir, of_host, keep=final)
    notes = [] if request.check else write_outputs(run_dir, answers)
    # No change, as is the start, where a verification records the job: its monitor may be about to end by itself.
    changed = request.purpose != "record" and any(answer.get("changed") for answer in answers.values())
    warnings = {"warnings": [others]} if others else {}
    return {"changed": changed, "answers": answers, "notes": notes, **warnings}


def _remove(job: Kubernetes, run_dir: Path, state: Answer, final: bool, request: Request) -> Answer:
    """Remove a job that is stopped, or can never start, from its cluster, and the secrets of one that has ended."""
    stop, waits = request.purpose == "stop", request.purpose == "end" and not final
    # If some pods can never start, the others would keep their devices.
    whole = stop or (waits and bool(state.get("hopeless")))
    removed: Answer = {"changed": whole}
    if not request.check and (whole or (waits and state["state"] not in ("pending", "running"))):
        removed = job.remove("" if whole else "Secret")
        if whole and "changed" in removed:
            note_submitted(run_dir, job.engine["engine_id"], removed=True)
    return {**removed, "whole": whole}


def _of_scheduler(job: Slurm | Kubernetes, state: Answer, run_dir: Path, final: bool, request: Request) -> Answer:
    """Return `job_state`; remove a job that is stopped, or can never start, from its cluster.

    A silent scheduler fails the task, unless the record of the job is final.
    """
    stop = request.purpose == "stop"
    ended = job.end(check=request.check) if stop else {"changed": False}
    if "changed" not in ended:
        return _failed(ended)
    if stop:
        state = job.state(waits=False)
    if "state" not in state:
        return {"job_state": state} if final and not stop else _failed(state)
    answers, others = job.logs(state, request.log_limit)
    for answer in answers:
        if not request.check:
            write_logs(run_dir, answer.get("logs", {}), keep=final)
    changed = ended["changed"]
    if isinstance(job, Kubernetes):
        removed = _remove(job, run_dir, state, final, request)
        if "changed" not in removed:
            return _failed(removed)
        changed = changed or removed["changed"]
        state = job.after_removal(state) if removed["whole"] else state
        if "state" not in state:
            return _failed(state)
    return {"changed": changed, "job_state": dict(state), **({"warnings": [others]} if others else {})}


def _failed(answer: Mapping[str, Any]) -> Answer:
    return {"failed": True, "msg": reason(answer) or "no answer"}
