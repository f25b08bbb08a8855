# SPDX-License-Identifier: Apache-2.0
"""Find the requested run among those that this controller started, and its state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...trainyard.base import state_format
from ...trainyard.base.findings import Finding, FindingsError, UnusableError
from ...trainyard.cluster.unreachable import reason
from ...trainyard.job.record import job_runs, run_record
from ...trainyard.job.run.lead import leader
from ..runs.run_folder import launches, read_all_plans, read_submitted, scheduler_of
from ..runs.saved_state import NotReadError, read_record
from . import heads
from .schedulers.scheduler_clients import Ask, external_job


def find(
    runs_dir: Path, job_id: str = "", job_name: str = "", *, must_name: bool = False, ask: Ask | None = None
) -> dict[str, Any]:
    """Return the requested run: job_id, job_dir, run_dir, `over` (its record is final), `engine` (its scheduler).

    `note` lists other active runs. Without both names it chooses among all runs, unless `must_name`. With `ask`, nodes
    report which runs without a final record are active. `must_name` also finds a run that is `launching`: it has
    started nothing yet. Raises UnusableError with the existing runs.
    """
    begun, unread = read_all_plans(runs_dir)
    if job_id in unread:
        raise FindingsError([unread[job_id]], job_runs.HEADLINE)
    launched = launches(runs_dir) if must_name else []
    launching, plans = [plan["job_id"] for plan in launched], [*begun, *launched]
    open_runs = job_runs.may_run(plans, job_id, job_name, lambda plan: _has_ended(runs_dir, plan)) if ask else []
    answers = _ask(open_runs, runs_dir, ask, launching) if ask and open_runs else None
    lines = [] if job_id else _not_read(unread, job_name)
    try:
        plan, note = job_runs.find(plans, job_id, job_name, must_name, str(runs_dir), answers)
    except FindingsError:
        raise
    except UnusableError as error:
        raise UnusableError("\n".join([str(error), *lines])) from error
    return {
        "job_id": plan["job_id"],
        "job_dir": plan.get("job_dir", ""),
        "launching": plan["job_id"] in launching,
        "run_dir": str(runs_dir / plan["job_id"]),
        "over": _record_is_final(runs_dir, plan),
        "engine": scheduler_of(dict(plan), runs_dir) if "engine" in plan else {},
        "note": "\n".join(filter(None, [note, *lines])),
    }


def _not_read(unread: Mapping[str, Finding], job_name: str) -> list[str]:
    """Return a line on each run of a newer version that may be the requested one."""
    newer = (each for name, each in unread.items() if name.startswith(job_name) and each.check != state_format.DAMAGED)
    return list(map(state_format.line, newer))


def hosts_to_ask(plan: Mapping[str, Any]) -> list[str]:
    """Return the hosts that report whether a run is active; none where the controller asks the scheduler itself."""
    if "engine" not in plan:
        return leader.hosts(plan)
    return [plan["engine"]["submit_host"]] if plan["engine"]["kind"] == "slurm" else []


def active(plans: Sequence[Mapping[str, Any]], runs_dir: Path, ask: Ask) -> job_runs.Answers:
    """Return which of these runs are active, as their heads or schedulers report; runs with a final record are not."""
    unfinished = [plan for plan in plans if not _has_ended(runs_dir, plan)]
    return _ask(unfinished, runs_dir, ask) if unfinished else job_runs.Answers({}, {})


def _record_is_final(runs_dir: Path, plan: Mapping[str, Any]) -> bool:
    return run_record.is_final(read_record(runs_dir / plan["job_id"]))


def _has_ended(runs_dir: Path, plan: Mapping[str, Any]) -> bool:
    """Tell whether a run has ended, as far as this controller knows."""
    removed = "engine" in plan and read_submitted(runs_dir, plan["job_id"]).get("removed")
    try:
        return bool(removed) or _record_is_final(runs_dir, plan)
    except NotReadError:
        # Its nodes know.
        return False


def _ask(
    plans: Sequence[Mapping[str, Any]], runs_dir: Path, ask: Ask, launching: Sequence[str] = ()
) -> job_runs.Answers:
    """Query each head once for all its jobs, and the schedulers for each of theirs, but nobody for a launch."""
    running: dict[str, str] = {}
    unknown: dict[str, str] = {}
    over_ssh = []
    for plan in plans:
        if plan["job_id"] in launching:
            running[plan["job_id"]] = job_runs.LAUNCHING
            continue
        if "engine" not in plan:
            over_ssh.append(plan)
            continue
        state = external_job(plan, runs_dir, ask).state(waits=False)
        if "state" not in state:
            unknown[plan["job_id"]] = reason(state) or "no answer"
        elif state["state"] in ("pending", "running"):
            running[plan["job_id"]] = str(state.get("line", ""))
    lines, silent = heads.running(over_ssh, ask)
    return job_runs.Answers({**running, **lines}, {**unknown, **silent})
