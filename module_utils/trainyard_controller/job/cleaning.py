# SPDX-License-Identifier: Apache-2.0
"""Clean up after ended jobs: query nodes and schedulers, choose, remove, and record what was removed."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...trainyard.base import state_format
from ...trainyard.base.findings import Finding, FindingsError, connection_reason
from ...trainyard.cluster.unreachable import reason
from ...trainyard.job.record import job_runs
from ...trainyard.job.record.folder_layout import HOST
from ...trainyard.job.record.job_runs import SavedRun
from ...trainyard.job.record.removable_jobs import DAY_S, KUBERNETES, Folder, choose, describe, of_schedulers
from ...trainyard_node.machine.tree import size_of
from ..runs.inventory_options import inventory_given
from ..runs.run_folder import (
    NotWrittenError,
    note_removed,
    note_submitted,
    read_all_plans,
    read_plans,
    saved_runs,
    scheduler_runs,
    witnesses,
)
from ..runs.saved_state import NotReadError, read_plan
from . import collecting
from .collecting import is_final
from .reporting import report
from .schedulers.scheduler_clients import Answer, Ask, Kubernetes, external_job

# Time limit for the removal of folders, in seconds: a node may have the checkpoints of many jobs.
_REMOVE_S = 600.0
_AGAIN = "fix that error, then run this again"


@dataclass(frozen=True)
class Request:
    """What to clean: one job, or all that ended more than `days` ago; with `of_runs` also their runs."""

    hosts: Sequence[str]
    known_hosts: Sequence[str]
    runs_dir: Path
    state_dir: str
    job_id: str
    days: float | None
    of_runs: bool
    check: bool


@dataclass(frozen=True)
class Chosen:
    """What to remove: folders (`job_id`, `job_dir`) by host, objects in Kubernetes by run, and names in runs/."""

    remove: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    objects: list[dict[str, Any]] = field(default_factory=list)
    records: list[str] = field(default_factory=list)
    text: str = ""


def plan(request: Request, ask: Ask, now: float) -> Chosen:
    """Query all nodes, and the schedulers whose jobs left something, and choose. Raises FindingsError."""
    latest = now - (request.days or 0) * DAY_S
    plans = read_plans(request.runs_dir)
    runs = [
        run
        for run in scheduler_runs(request.runs_dir, plans)
        if request.job_id in ("", run["job_id"]) and run["planned"] <= latest
    ]
    others = {run["submit_host"] for run in runs if run["kind"] == "slurm"} | witnesses(request.runs_dir, plans)
    hosts = [*request.hosts, *sorted(others.intersection(request.known_hosts).difference(request.hosts))]
    answers = ask("folders", _folder_queries(request.state_dir, hosts, runs))
    left = {each["job_id"] for answer in answers.values() for each in answer.get("folders", ())}
    # Other jobs of Slurm without a folder leave nothing to remove.
    runs = [run for run in runs if run["kind"] == "kubernetes" or run["job_id"] in {*left, request.job_id}]
    return choose_all(request, answers, runs, {run["job_id"]: _state(run, request.runs_dir, ask) for run in runs}, now)


def _folder_queries(
    state_dir: str, hosts: Sequence[str], runs: Sequence[Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Return the query of each host. A folder that all nodes share is only removed where the job was submitted."""
    slurm = [run for run in runs if run["kind"] == "slurm"]
    own = [run["job_dir"] for run in slurm if not run["settings"]["shared"]]
    return {
        host: {
            "state_dir": state_dir,
            "of_schedulers": own
            + [
                run["job_dir"].replace(HOST, "*")
                for run in slurm
                if run["settings"]["shared"] and run["submit_host"] == host
            ],
        }
        for host in hosts
    }


def _state(run: Mapping[str, Any], runs_dir: Path, ask: Ask) -> Answer:
    found = read_plan(runs_dir / run["job_id"])
    answer = external_job(found, runs_dir, ask).state(waits=False)
    return answer if "state" in answer else {"msg": reason(answer)}


def choose_all(
    request: Request,
    answers: Mapping[str, Answer],
    runs: Sequence[dict[str, Any]],
    states: Mapping[str, Answer],
    now: float,
) -> Chosen:
    """Choose from the folders that hosts have, and the `states` of `runs` by their schedulers. Raises FindingsError."""
    nodes = {
        host: [Folder.from_dict(each) for each in answer["folders"]]
        for host, answer in answers.items()
        if "folders" in answer
    }
    schedulers, unknown = of_schedulers(runs, states, now)
    folders = {**nodes, **schedulers}
    records, unread = saved_runs(request.runs_dir, now) if request.of_runs else ([], {})
    records += _named_and_damaged(request, unread)
    names = {run.name for run in records} | set(unread)
    chosen, findings = choose(folders, request.job_id, request.days, unknown, names, inventory_given())
    if findings:
        raise FindingsError(findings, "{count} {findings}: nothing was removed.")
    silent = {host: reason(answer) for host, answer in answers.items() if host not in nodes}
    go, stay = job_runs.may_go(records, folders, list(silent), request.job_id, request.days, unknown)
    text = describe(chosen, silent, request.check, unknown)
    if request.of_runs:
        gone = {run.name for run in go} | set(stay)
        stay |= {name: each.found for name, each in unread.items() if request.job_id in ("", name) and name not in gone}
        text += "\n" + job_runs.describe(go, stay, str(request.runs_dir), request.check)
    in_cluster = {folder.job_id for folder in chosen.get(KUBERNETES, ())}
    return Chosen(
        remove={
            host: [{"job_id": folder.job_id, "job_dir": folder.job_dir} for folder in folders]
            for host, folders in chosen.items()
            if folders and host in nodes
        },
        objects=[run for run in runs if run["job_id"] in in_cluster],
        records=[run.name for run in go],
        text=text,
    )


def _named_and_damaged(request: Request, unread: Mapping[str, Finding]) -> list[SavedRun]:
    """Return the named run if its files are damaged: it may go where no host has anything of it that runs."""
    name = request.job_id
    if name not in unread or unread[name].check != state_format.DAMAGED:
        return []
    return [SavedRun(name, 0.0, size_of(request.runs_dir / name) >> 20, open_hosts=tuple(request.hosts))]


def unrecorded(
    folders: Mapping[str, Sequence[Mapping[str, str]]],
    objects: Sequence[Mapping[str, Any]],
    records: Sequence[str],
    runs_dir: Path,
) -> list[str]:
    """Return the jobs to be removed that have a run here without a final record, except the runs in `records`."""
    names = {each["job_id"] for jobs in [*folders.values(), objects] for each in jobs} - set(records)
    if not names:
        # Reading the plans of a large cluster takes a while.
        return []
    plans, unread = read_all_plans(runs_dir)
    started = {plan["job_id"] for plan in plans} | set(unread)
    return sorted(name for name in names & started if not _is_recorded(runs_dir / name))


def _is_recorded(run_dir: Path) -> bool:
    try:
        return is_final(run_dir)
    except NotReadError:
        return False


def record_ends(
    names: Sequence[str], runs_dir: Path, ask: Ask, log_limit: int, excluded_file: Path
) -> tuple[list[str], list[Finding]]:
    """Collect logs and result of jobs that ended unwatched, before the folders are removed.

    Returns a line on how each ended, and the findings.
    """
    lines, findings = [], []
    for name in names:
        run_dir, why = runs_dir / name, ""
        try:
            found = read_plan(run_dir)
            collected = collecting.collect(found, run_dir, ask, collecting.Request(log_limit))
            why = str(collected.get("msg", "")) if collected.get("failed") else ""
            if not why:
                answers, state = collected.get("answers") or {}, collected.get("job_state")
                ended = report(run_dir, answers, {}, job_state=state, excluded_file=excluded_file)
                lines.append(f"Recorded how {name} ended, which nobody had watched: {ended.summary['state']}.")
        except NotWrittenError as error:
            why = f"cannot write {error.filename}: {error.strerror}"
        except NotReadError as error:
            action = f"{error.finding.action}; or remove {run_dir}"
            findings.append(replace(error.finding, check=f"how {name} ended", action=action))
        if why:
            expected = "a record of it in runs/ before its folders are removed"
            findings.append(Finding(f"how {name} ended", why, expected, _AGAIN))
    return lines, findings


def remove_objects(runs: Sequence[Mapping[str, Any]], runs_dir: Path) -> dict[str, dict[str, Answer]]:
    """Remove the objects of jobs in Kubernetes, and record it with the run; return the answers as `remove` does."""
    answers = {}
    for run in runs:
        answer = Kubernetes(run).remove()
        if "changed" in answer:
            note_submitted(runs_dir / run["job_id"], run["engine_id"], removed=True)
            answer["known"] = False
        answers[run["job_id"]] = answer
    return {KUBERNETES: answers} if answers else {}


def remove(jobs: Mapping[str, Sequence[Mapping[str, str]]], ask: Ask) -> dict[str, dict[str, Answer]]:
    """Remove folders of jobs on all hosts at once; return the answers by host and job."""
    answers: dict[str, dict[str, Answer]] = {host: {} for host in jobs}
    for number in range(max(map(len, jobs.values()), default=0)):
        of_each = {host: dict(folders[number]) for host, folders in jobs.items() if len(folders) > number}
        for host, answer in ask("remove", of_each, limit_s=_REMOVE_S).items():
            answers[host][of_each[host]["job_id"]] = answer
    return answers


def note(
    runs_dir: Path, answers: Mapping[str, Mapping[str, Answer]], records: Sequence[str], now: float
) -> list[Finding]:
    """Record with the runs what was removed, and remove `records` of which nothing is left; return the findings."""
    removed: dict[str, dict[str, float]] = {}
    findings, stays = [], set()
    for host, jobs in answers.items():
        for job_id, answer in jobs.items():
            if "known" in answer:
                removed.setdefault(job_id, {})[host] = now
                continue
            stays.add(job_id)
            why = connection_reason(str(answer.get("msg") or ""))
            what, where = ("objects", "in the cluster") if host == KUBERNETES else ("folder", "on the node")
            findings.append(Finding(f"{what} of {job_id}", why, f"none {where} any more", _AGAIN, host=host))
    for job_id, hosts in removed.items():
        note_removed(runs_dir / job_id, hosts)
    for name in records:
        if name not in stays and (runs_dir / name).is_dir():
            shutil.rmtree(runs_dir / name)
    return findings
