# SPDX-License-Identifier: Apache-2.0
"""The runs of this controller: choose one by job_id or job_name, and choose those to remove from runs/.

Jobs that a playbook runs for itself (a check of collectives, a benchmark, pairs) are never "the newest run": only their
job_id finds them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...findings.findings import Finding, FindingsError, UnusableError, counted, host_list
from .cleaning import DAY_S, Folder
from .run_record import FINAL

Data = Mapping[str, Any]

# The playbook behind a run: launch.yml for its user, or another one for itself.
USER = "launch.yml"
# Replaces the progress line of a job that has not started yet.
LAUNCHING = "launching"
HEADLINE = "{count} {findings}: no job was chosen, and nothing was touched."


def asked_by(plan: Data) -> str:
    """Return the playbook that asked for the run; old plans do not have it."""
    return str(plan.get("asked_by") or USER)


def of_users(plans: Sequence[Data], job_name: str) -> list[Data]:
    """Return the plans of jobs that users started, only those of `job_name` if given, in the same order."""
    return [plan for plan in plans if asked_by(plan) == USER and job_name in ("", plan["job_name"])]


def may_run(plans: Sequence[Data], job_id: str, job_name: str, ended: Callable[[Data], bool]) -> list[Data]:
    """Return the plans of the runs to ask the nodes about; `ended` returns whether a record is final.

    If only the newest one may still run, no node is asked: it is chosen in any case.
    """
    candidates = [] if job_id else of_users(plans, job_name)
    found = [plan for plan in candidates if not ended(plan)]
    return [] if found == candidates[-1:] else found


@dataclass(frozen=True)
class Answers:
    """The progress line of each run that still runs, and why the state of others is unknown."""

    running: Mapping[str, str]
    unknown: Mapping[str, str]


def find(
    plans: Sequence[Data], job_id: str, job_name: str, must_name: bool, runs_dir: str, answers: Answers | None = None
) -> tuple[Data, str]:
    """Return the plan of the chosen run, and a note about others that run. Raises UnusableError without one.

    `plans` are those of all runs, oldest first. A running one precedes newer ones that have ended. With `must_name` a
    playbook that ends or removes a run never guesses: neither without a name, nor among several that run, nor if it is
    unknown whether one runs.
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
            text += f"Runs of playbooks, which only job_id finds: {', '.join(own)}. "
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
    """Find that several runs run, or that it is unknown whether one does."""
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
    """Return a note that lists the running runs, and says that the newest is taken."""
    found = [f"  {_where(plan, lines[plan['job_id']])}" for plan in running]
    taken = f"{counted(len(running), 'job')} run; the newest is taken. Name another one with -e job_id=NAME:"
    return "\n".join([taken, *found])


def _where(plan: Data, line: str) -> str:
    """Return since when and where a run runs, and its progress."""
    if line == LAUNCHING:
        return f"{plan['job_id']} is being launched since {plan['created']}"
    hosts = host_list([node["host"] for node in plan["nodes"]])
    parts = [f"{plan['job_id']} runs since {plan['created']}", *([f"on {hosts}"] if hosts else [])]
    return ", ".join([" ".join(parts), *([" ".join(line.split())] if line.strip() else [])])


@dataclass(frozen=True)
class Kept:
    """A folder in runs/: the record of a job, or of a verification (verify.yml) of the cluster `verified`.

    `started` is false for a plan that --check made or that findings stopped. `open_hosts` are hosts where the job may
    still run by its record. `engine` is the external scheduler, or "".
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
        """Read the run of a job; `begun` is false if findings stopped it or its launch was interrupted."""
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

    `nodes` has the folders of jobs on nodes that answered and in schedulers, `silent` the nodes that did not answer.
    The newest verification of a cluster stays, for comparison with the next one.
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
            # Running jobs, and those unknown to their scheduler, are reported elsewhere.
            continue
        why = _may_run(run, nodes, silent) if run.started and run.verified is None else ""
        if why:
            stay[run.name] = why
        else:
            go.append(run)
    return go, stay


def _may_run(run: Kept, nodes: Mapping[str, Sequence[Folder]], silent: Sequence[str]) -> str:
    """Return why the run may still run, or have files that only its plan names; "" if neither can be."""
    unasked = [host for host in run.open_hosts if host not in nodes]
    if unasked:
        return f"{host_list(unasked)} did not say whether it still runs there"
    if run.engine and run.state not in FINAL:
        known = any(folder.job_id == run.name for folders in nodes.values() for folder in folders)
        return "" if known else f"its record does not say how it ended: playbooks/status.yml -e job_id={run.name}"
    if run.engine and silent:
        return f"{host_list(silent)} did not say whether it left something there"
    return ""


def describe(go: Sequence[Kept], stay: Mapping[str, str], runs_dir: str, check: bool) -> str:
    """Return lines on the removed runs, and on those that must stay."""
    verb = "Would remove" if check else "Removed"
    size = sum(run.size_mib for run in go)
    lines = [f"{verb} {len(go)} {'run' if len(go) == 1 else 'runs'} ({size} MiB) from {runs_dir}."]
    lines += [f"  {run.name}" for run in sorted(go, key=lambda run: run.name)]
    if not go:
        lines = [f"No run to remove from {runs_dir}."]
    return "\n".join([*lines, *(f"  {name} stays: {why}" for name, why in sorted(stay.items()))])
