# SPDX-License-Identifier: Apache-2.0
"""What jobs that have ended left behind, as clean.yml sees it: ask nodes and schedulers, choose, remove, note."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..trainyard.cluster.unreachable import reason
from ..trainyard.findings.findings import Finding, connection_reason
from ..trainyard.job.record import runs as kept_records
from ..trainyard.job.record.cleaning import DAY_S, KUBERNETES, Folder, choose, describe, of_schedulers
from .collecting import Wanted as Collected
from .collecting import collect, is_final
from .inventory_options import inventory_given
from .reporting import report
from .run_folder import NotWrittenError, kept_runs, note_removed, note_submitted, read_plans, scheduler_runs
from .scheduler_clients import Answer, Ask, Kubernetes, external_job

# A node may have the checkpoints of many jobs to remove.
_REMOVE_S = 600.0


@dataclass(frozen=True)
class Wanted:
    """What clean.yml was asked for: one job, or all that ended more than `days` ago; with `of_runs` their runs, too."""

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
    """What goes: folders (`job_id`, `job_dir`) by host, runs whose objects in Kubernetes go, and names in runs/."""

    findings: list[Finding]
    remove: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    objects: list[dict[str, Any]] = field(default_factory=list)
    records: list[str] = field(default_factory=list)
    text: str = ""


def plan(wanted: Wanted, ask: Ask, now: float) -> Chosen:
    """Ask all nodes, and the schedulers whose jobs left something, and choose. Nothing is removed."""
    latest = now - (wanted.days or 0) * DAY_S
    runs = [
        run
        for run in scheduler_runs(wanted.runs_dir)
        if wanted.job_id in ("", run["job_id"]) and run["planned"] <= latest
    ]
    submitters = {run["submit_host"] for run in runs if run["kind"] == "slurm"} & set(wanted.known_hosts)
    answers = ask("folders", _where(wanted, [*wanted.hosts, *sorted(submitters - set(wanted.hosts))], runs))
    left = {each["job_id"] for answer in answers.values() for each in answer.get("folders", ())}
    # A job of Slurm that left no folder, and is not the one that is meant, is nobody's business.
    runs = [run for run in runs if run["kind"] == "kubernetes" or run["job_id"] in {*left, wanted.job_id}]
    return choice(wanted, answers, runs, {run["job_id"]: _state(run, wanted.runs_dir, ask) for run in runs}, now)


def _where(wanted: Wanted, hosts: Sequence[str], runs: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return what each host is told: one folder that all nodes share is removed once, where the job was submitted."""
    slurm = [run for run in runs if run["kind"] == "slurm"]
    own = [run["job_dir"] for run in slurm if not run["settings"]["shared"]]
    return {
        host: {
            "state_dir": wanted.state_dir,
            "of_schedulers": own
            + [run["job_dir"] for run in slurm if run["settings"]["shared"] and run["submit_host"] == host],
        }
        for host in hosts
    }


def _state(run: Mapping[str, Any], runs_dir: Path, ask: Ask) -> Answer:
    found = json.loads((runs_dir / run["job_id"] / "plan.json").read_text())
    answer = external_job(found, runs_dir, ask).state(waits=False)
    return answer if "state" in answer else {"msg": reason(answer)}


def choice(
    wanted: Wanted,
    answers: Mapping[str, Answer],
    runs: Sequence[dict[str, Any]],
    states: Mapping[str, Answer],
    now: float,
) -> Chosen:
    """Choose what goes, from the folders that hosts have and what schedulers say of their `runs`."""
    nodes = {
        host: [Folder.from_dict(each) for each in answer["folders"]]
        for host, answer in answers.items()
        if "folders" in answer
    }
    schedulers, unknown = of_schedulers(runs, states, now)
    asked = {**nodes, **schedulers}
    kept = kept_runs(wanted.runs_dir, now) if wanted.of_runs else []
    chosen, findings = choose(asked, wanted.job_id, wanted.days, unknown, {run.name for run in kept}, inventory_given())
    if findings:
        return Chosen(findings)
    silent = {host: reason(answer) for host, answer in answers.items() if host not in nodes}
    go, stay = kept_records.may_go(kept, asked, list(silent), wanted.job_id, wanted.days, unknown)
    text = describe(chosen, silent, wanted.check, unknown)
    if wanted.of_runs:
        text += "\n" + kept_records.describe(go, stay, str(wanted.runs_dir), wanted.check)
    in_cluster = {folder.job_id for folder in chosen.get(KUBERNETES, ())}
    return Chosen(
        [],
        remove={
            host: [{"job_id": folder.job_id, "job_dir": folder.job_dir} for folder in folders]
            for host, folders in chosen.items()
            if folders and host in nodes
        },
        objects=[run for run in runs if run["job_id"] in in_cluster],
        records=[run.name for run in go],
        text=text,
    )


def unrecorded(
    folders: Mapping[str, Sequence[Mapping[str, str]]],
    objects: Sequence[Mapping[str, Any]],
    records: Sequence[str],
    runs_dir: Path,
) -> list[str]:
    """Return which of the jobs to be removed have a run here whose record does not say how they ended.

    `folders` are by host, `objects` in Kubernetes; runs among `records` are about to be removed themselves.
    """
    names = {each["job_id"] for jobs in [*folders.values(), objects] for each in jobs} - set(records)
    if not names:
        # To read the plans of a large cluster takes a while.
        return []
    started = {plan["job_id"] for plan in read_plans(runs_dir)}
    return sorted(name for name in names & started if not is_final(runs_dir / name))


def record_ends(
    names: Sequence[str], runs_dir: Path, ask: Ask, log_limit: int, excluded_file: Path
) -> tuple[list[str], list[Finding]]:
    """Bring the logs and the result of jobs that ended unwatched, before what they are read from is removed.

    Returns how each ended, and what could not be recorded.
    """
    lines, findings = [], []
    for name in names:
        run_dir = runs_dir / name
        found = json.loads((run_dir / "plan.json").read_text())
        try:
            told = collect(found, run_dir, ask, Collected(log_limit))
            why = str(told.get("msg", "")) if told.get("failed") else ""
            if not why:
                ended = report(
                    run_dir, told.get("answers") or {}, {}, job_state=told.get("job_state"), excluded_file=excluded_file
                )
                lines.append(f"Recorded how {name} ended, which nobody had watched: {ended.summary['state']}.")
        except NotWrittenError as error:
            why = f"cannot write {error.filename}: {error.strerror}"
        if why:
            expected = "a record of it in runs/ before what it has left is removed"
            do = "repair what is said there, then run this again"
            findings.append(Finding(f"how {name} ended", why, expected, do))
    return lines, findings


def remove_objects(runs: Sequence[Mapping[str, Any]], runs_dir: Path) -> dict[str, dict[str, Answer]]:
    """Remove what jobs are in Kubernetes, and note it with the run; returns the answers as `remove` does."""
    answers = {}
    for run in runs:
        answer = Kubernetes(run).remove()
        if "changed" in answer:
            note_submitted(runs_dir / run["job_id"], run["engine_id"], removed=True)
            answer["known"] = False
        answers[run["job_id"]] = answer
    return {KUBERNETES: answers} if answers else {}


def remove(jobs: Mapping[str, Sequence[Mapping[str, str]]], ask: Ask) -> dict[str, dict[str, Answer]]:
    """Remove folders of jobs from their hosts, on all hosts at once; returns the answers by host and job."""
    answers: dict[str, dict[str, Answer]] = {host: {} for host in jobs}
    for number in range(max(map(len, jobs.values()), default=0)):
        of_each = {host: dict(folders[number]) for host, folders in jobs.items() if len(folders) > number}
        for host, answer in ask("remove", of_each, limit_s=_REMOVE_S).items():
            answers[host][of_each[host]["job_id"]] = answer
    return answers


def note(
    runs_dir: Path, answers: Mapping[str, Mapping[str, Answer]], records: Sequence[str], now: float
) -> list[Finding]:
    """Note with the runs what went, and remove `records`, but those of which something is left.

    Returns what could not be removed.
    """
    removed: dict[str, dict[str, float]] = {}
    findings, stays = [], set()
    for host, jobs in answers.items():
        for job_id, answer in jobs.items():
            if "known" in answer:
                removed.setdefault(job_id, {})[host] = now
                continue
            stays.add(job_id)
            why = connection_reason(str(answer.get("msg") or ""))
            do = "repair what is said there, then run this again"
            what, where = ("objects", "in the cluster") if host == KUBERNETES else ("folder", "on the node")
            findings.append(Finding(f"{what} of {job_id}", why, f"none {where} any more", do, host=host))
    for job_id, hosts in removed.items():
        note_removed(runs_dir / job_id, hosts)
    for name in records:
        if name not in stays and (runs_dir / name).is_dir():
            shutil.rmtree(runs_dir / name)
    return findings
