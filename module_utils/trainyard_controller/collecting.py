# SPDX-License-Identifier: Apache-2.0
"""Ask all nodes of a job, or its scheduler, how it is, and bring its logs into the folder of the run."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from ..trainyard.cluster.unreachable import reason
from ..trainyard.job.plan import log_names
from ..trainyard.job.plan import spare_places as spares
from ..trainyard.job.record import run_record
from ..trainyard.job.run.answers import of_job
from ..trainyard_node.machine.json_files import read_json
from .run_folder import note_submitted, write_logs
from .scheduler_clients import Answer, Ask, Kubernetes, Slurm, external_job

_LIMIT_S = 300.0


@dataclass(frozen=True)
class Wanted:
    """How to collect: `stop` ends what is left on nodes first, `asked` is that of roles/job/tasks/main.yml.

    Each log brings at most its last `log_limit` bytes. With `check` nothing is ended or written. With `stop` it is
    named what `user`, as whom the job runs, has begun besides. `not_started` are the answers of nodes that could not
    start their part, where a launch asks.
    """

    log_limit: int
    asked: str = "tell"
    stop: bool = False
    check: bool = False
    user: str = ""
    not_started: Mapping[str, Answer] = field(default_factory=dict)


def is_final(run_dir: Path) -> bool:
    """Tell whether the record of a run says how it ended, so that nothing changes it any more."""
    return run_record.is_final(run_record.read(read_json(run_dir / "summary.json")))


def collect(plan: Mapping[str, Any], run_dir: Path, ask: Ask, wanted: Wanted) -> Answer:
    """Return `answers` of all hosts without their logs, which stand in the run's folder then; or `job_state`.

    Where a scheduler gives no answer, it is `failed` with `msg`. Raises NotWrittenError.
    """
    over = is_final(run_dir)
    if "engine" in plan:
        return _of_scheduler(external_job(plan, run_dir.parent, ask), run_dir, over, wanted)
    shared = {"job_id": plan["job_id"], "job_dir": plan["job_dir"], "stop": wanted.stop}
    shared |= {"log_limit": wanted.log_limit, "check": wanted.check, "user": wanted.user}
    # As a span: the node's clock may be another.
    shared["age_s"] = time.time() - datetime.strptime(plan["created"], "%Y-%m-%dT%H:%M:%S%z").timestamp()
    theirs = _of_another_launch(wanted.not_started)
    ours = [host for host in spares.hosts(plan) if host not in theirs]
    told = ask("collect", dict.fromkeys(ours, shared), limit_s=_LIMIT_S) if ours else {}
    answers = {**{host: of_job(plan, answer) for host, answer in told.items()}, **theirs}
    logs, others = log_names.kept(plan, answers)
    if not wanted.check:
        for brought in logs.values():
            write_logs(run_dir, brought, keep=over)
    changed = any(answer.get("changed") for answer in answers.values())
    return {"changed": changed, "answers": answers, **({"warnings": [others]} if others else {})}


def _of_another_launch(not_started: Mapping[str, Answer]) -> dict[str, Answer]:
    """Return the answers of nodes on which the job of this id may be another launch's, so that nothing is ended there.

    A node says so; where one does, a node that has not started its part and does not say why counts, too.
    """
    return dict(not_started) if any(answer.get("taken") for answer in not_started.values()) else {}


def _of_scheduler(job: Slurm | Kubernetes, run_dir: Path, over: bool, wanted: Wanted) -> Answer:
    """Return `job_state`; a job that is stopped, or can never start, is removed from its cluster.

    A scheduler that does not answer is told of by the report only where the record says how the job ended.
    """
    waits, stop = wanted.asked == "end" and not over, wanted.asked == "stop"
    ended = job.end(check=wanted.check) if stop else {"changed": False}
    if "changed" not in ended:
        return _failed(ended)
    state = job.state(waits=waits)
    if "state" not in state:
        return {"changed": False, "job_state": state} if over and not stop else _failed(state)
    exits = []
    brought, others = job.logs(state, wanted.log_limit)
    for answer in brought:
        exits += answer.get("exits", ())
        if not wanted.check:
            write_logs(run_dir, answer.get("logs", {}), keep=over)
    changed = ended["changed"]
    if isinstance(job, Kubernetes) and (stop or waits):
        # A job whose pods can never start would hold what those of them have that did.
        whole = stop or bool(state.get("hopeless"))
        ended_there = state["state"] not in ("pending", "running")
        # As over ssh, what is secret goes when the job ends.
        gone = (
            job.remove("" if whole else "Secret") if (whole or ended_there) and not wanted.check else {"changed": whole}
        )
        if "changed" not in gone:
            return _failed(gone)
        changed = changed or gone["changed"]
        state = job.after_removal(state) if whole else state
        if "state" not in state:
            return _failed(state)
        if whole and not wanted.check:
            note_submitted(run_dir, job.engine["engine_id"], removed=True)
    said = {"warnings": [others]} if others else {}
    return {"changed": changed, "job_state": {**state, "exits": exits}, **said}


def _failed(answer: Mapping[str, Any]) -> Answer:
    return {"failed": True, "msg": reason(answer) or "no answer"}
