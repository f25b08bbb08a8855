# SPDX-License-Identifier: Apache-2.0
"""The runs that this controller started: which one is meant by job_id and job_name, and which may go from runs/.

What a playbook runs to learn something (a check of collectives, a benchmark, pairs) is a job like any other, but nobody
means it by "the newest": it is found by its job_id alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...findings.findings import Finding, FindingsError, UnusableError, counted, host_list
from .cleaning import DAY_S, Folder
from .run_record import FINAL

Data = Mapping[str, Any]

# Who asked for a run: launch.yml for its user, or a playbook for itself, by its name.
USER = "launch.yml"
# In place of the line of progress of a job that has not been started as yet.
LAUNCHING = "launching"
HEADLINE = "{count} {findings}: no job was chosen, and nothing was touched."


def asked_by(plan: Data) -> str:
    """Name the playbook that wanted the run; plans of older releases do not say."""
    return str(plan.get("asked_by") or USER)


def of_users(plans: Sequence[Data], job_name: str) -> list[Data]:
    """Return the plans of the jobs that users started, those of `job_name` where there is one, in the same order."""
    return [plan for plan in plans if asked_by(plan) == USER and job_name in ("", plan["job_name"])]


def may_run(plans: Sequence[Data], job_id: str, job_name: str, ended: Callable[[Data], bool]) -> list[Data]:
    """Return the plans of the runs to ask the nodes about; `ended` says whether the record of one is final.

    Where only the newest one may still run, nobody needs to be asked: it is the one that is meant in any case.
    """
    candidates = [] if job_id else of_users(plans, job_name)
    found = [plan for plan in candidates if not ended(plan)]
    return [] if found == candidates[-1:] else found


@dataclass(frozen=True)
class Answers:
    """The line of progress of each run that still runs, and why the nodes do not know others."""

    running: Mapping[str, str]
    unknown: Mapping[str, str]


def find(
    plans: Sequence[Data], job_id: str, job_name: str, must_name: bool, runs_dir: str, answers: Answers | None = None
) -> tuple[Data, str]:
    """Return the plan of the run that is meant and a note about others that run. Raises UnusableError without one.

    `plans` are those of all runs, oldest first. A run that runs comes before a newer one that does not. Without job_id
    and job_name it is one of all, unless one `must_name` it: what ends or removes something takes no guess, neither
    among several that run nor where nobody knows whether one runs.
    """
    users = of_users(plans, "")
    newest = ", ".join(plan["job_id"] for plan in users[-5:]) or "none"
    if must_name and not job_id and not job_name:
        unnamed = Finding(
            "which job",
            "neither job_id nor job_name",
            f"one of them; the newest runs in {runs_dir}: {newest}",
            "name the run with -e job_id=NAME, or the newest one of a job with -e job_name=NAME",
        )
        raise FindingsError([unnamed], HEADLINE)
    note = ""
    if job_id:
        plan = next((plan for plan in plans if plan["job_id"] == job_id), None)
    else:
        candidates = of_users(plans, job_name)
        running = [plan for plan in candidates if answers and plan["job_id"] in answers.running]
        findings = _no_guess(candidates, running, answers) if must_name and answers else []
        if findings:
            raise FindingsError(findings, HEADLINE)
        plan = next(reversed(running or candidates), None)
        note = _others(running, answers.running) if answers and len(running) > 1 else ""
    if plan is None:
        wanted = job_id or (f"of job {job_name}" if job_name else "at all")
        others = [] if job_id else [plan["job_id"] for plan in plans if plan not in users]
        own = [name for name in others if not job_name or name.startswith(f"{job_name}-")][-5:]
        text = f"No run {wanted} was started from {runs_dir}. The newest runs there: {newest}. "
        if own:
            text += f"Playbooks ran for themselves, and are found by job_id alone: {', '.join(own)}. "
        raise UnusableError(text + "Name one with -e job_id=NAME.")
    if job_name and plan["job_name"] != job_name:
        two = Finding(
            "job_id and job_name",
            f"{job_id} is a run of {plan['job_name']}, and job_name is {job_name}",
            "one job",
            "leave one of the two out",
        )
        raise FindingsError([two], HEADLINE)
    return plan, note


def _no_guess(candidates: Sequence[Data], running: Sequence[Data], answers: Answers) -> list[Finding]:
    """Find several runs that run, or none where one of them may run."""
    action = "name the run with -e job_id=NAME"
    if len(running) > 1:
        return [
            Finding(
                "which job",
                _where(plan, answers.running[plan["job_id"]]),
                "one run of that name that still runs",
                action,
            )
            for plan in running
        ]
    return [
        Finding(
            "which job",
            f"it is not known whether {plan['job_id']} runs: {answers.unknown[plan['job_id']]}",
            "an answer from its head node, or job_id",
            action,
        )
        for plan in candidates
        if not running and plan["job_id"] in answers.unknown
    ]


def _others(running: Sequence[Data], lines: Mapping[str, str]) -> str:
    """List all that run, and say which one is taken."""
    found = [f"  {_where(plan, lines[plan['job_id']])}" for plan in running]
    taken = f"{counted(len(running), 'job')} run; the newest is taken. Name another one with -e job_id=NAME:"
    return "\n".join([taken, *found])


def _where(plan: Data, line: str) -> str:
    """Say of a run since when it runs, where, and how far it is."""
    if line == LAUNCHING:
        return f"{plan['job_id']} is being launched since {plan['created']}"
    hosts = host_list([node["host"] for node in plan["nodes"]])
    parts = [f"{plan['job_id']} runs since {plan['created']}", *([f"on {hosts}"] if hosts else [])]
    return ", ".join([" ".join(parts), *([" ".join(line.split())] if line.strip() else [])])


@dataclass(frozen=True)
class Kept:
    """A folder in runs/: the record of a job, or of a verification (verify.yml), whose cluster it has then.

    `started` is false of a plan that --check made or that findings stopped. `open_hosts` are those on which something
    of the job may still run, as far as its record tells, and `engine` is what runs it there, "" without one.
    """

    name: str
    age_s: float
    size_mib: int
    started: bool = True
    state: str = ""
    open_hosts: tuple[str, ...] = ()
    engine: str = ""
    verified: str | None = None

    @classmethod
    def of_job(cls, name: str, age_s: float, size_mib: int, plan: Data, begun: bool, record: Data | None) -> Kept:
        """Read the run of a job; `begun` is false where findings stopped it, or somebody interrupted its launch."""
        state = record["state"] if record else ""
        nodes = record["nodes"] if record and state in FINAL else [*plan["nodes"], *plan.get("spares", ())]
        return cls(
            name,
            age_s,
            size_mib,
            started=begun and not plan.get("check"),
            state=state,
            open_hosts=tuple(node["host"] for node in nodes if node.get("state") != "ended"),
            engine=(plan.get("engine") or {}).get("kind", ""),
        )


def may_go(
    kept: Sequence[Kept],
    nodes: Mapping[str, Sequence[Folder]],
    silent: Sequence[str],
    job_id: str,
    days: float | None,
    unknown: Mapping[str, str],
) -> tuple[list[Kept], dict[str, str]]:
    """Choose what to remove from runs/: the run `job_id`, or all older than `days`; and why others must stay.

    `nodes` are the folders of jobs on those that answered and in schedulers, `silent` the nodes that did not answer.
    The newest verification of a cluster stays, so that the next one can be compared with it.
    """
    running = {folder.job_id for folders in nodes.values() for folder in folders if folder.running}
    youngest = {folder.job_id: folder.age_s for folders in nodes.values() for folder in folders}
    for folder in (folder for folders in nodes.values() for folder in folders):
        youngest[folder.job_id] = min(youngest[folder.job_id], folder.age_s)
    newest = {run.verified: run for run in sorted(kept, key=lambda run: -run.age_s) if run.verified is not None}
    go, stay = [], {}
    for run in kept:
        if run.name != job_id if days is None else min(run.age_s, youngest.get(run.name, run.age_s)) <= days * DAY_S:
            continue
        if (days is not None and run in newest.values()) or run.name in running or run.name in unknown:
            # What runs is no news, and of what its scheduler does not tell it has been said.
            continue
        why = _may_run(run, nodes, silent) if run.started and run.verified is None else ""
        if why:
            stay[run.name] = why
        else:
            go.append(run)
    return go, stay


def _may_run(run: Kept, nodes: Mapping[str, Sequence[Folder]], silent: Sequence[str]) -> str:
    """Say why something of this run may still run, or lie where only its plan leads; "" where that cannot be."""
    unasked = [host for host in run.open_hosts if host not in nodes]
    if unasked:
        return f"{host_list(unasked)} did not say whether it still runs there"
    if run.engine and run.state not in FINAL:
        told = any(folder.job_id == run.name for folders in nodes.values() for folder in folders)
        return "" if told else f"its record does not say how it ended: playbooks/status.yml -e job_id={run.name}"
    if run.engine and silent:
        return f"{host_list(silent)} did not say whether it left something there"
    return ""


def describe(go: Sequence[Kept], stay: Mapping[str, str], runs_dir: str, check: bool) -> str:
    """Say which runs are removed, and which could not be."""
    verb = "Would remove" if check else "Removed"
    size = sum(run.size_mib for run in go)
    lines = [f"{verb} {len(go)} {'run' if len(go) == 1 else 'runs'} ({size} MiB) from {runs_dir}."]
    lines += [f"  {run.name}" for run in sorted(go, key=lambda run: run.name)]
    if not go:
        lines = [f"No run to remove from {runs_dir}."]
    return "\n".join([*lines, *(f"  {name} stays: {why}" for name, why in sorted(stay.items()))])
