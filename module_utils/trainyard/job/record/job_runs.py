# SPDX-License-Identifier: Apache-2.0
"""The runs of this controller: choose one by job_id or job_name, and choose those to remove from runs/.

Jobs that a playbook runs for itself (a check of collectives, a benchmark, pairs) are never "the newest run": only their
job_id finds them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...base.findings import Finding, FindingsError, UnusableError, counted, host_list
from ...base.shapes import MAYBE_INT, TIME, Each, Shape
from .removable_jobs import DAY_S, Folder, by_job
from .run_record import FINAL

Data = Mapping[str, Any]

# The playbook behind a run: launch.yml for its user, or another one for itself.
USER = "launch.yml"
# Replaces the progress line of a job that has not started yet.
LAUNCHING = "launching"
HEADLINE = "{count} {findings}: no job was chosen, and nothing was touched."
# The content of submitted.json and of removed.json.
SUBMITTED: Shape = {"engine_id": str, "?removed": bool}
REMOVED: Shape = {"hosts": Each(TIME)}
# A launch that has started nothing yet.
LAUNCH: Shape = {
    **dict.fromkeys(("job_id", "job_name", "asked_by", "created", "machine"), str),
    **dict.fromkeys(("pid", "start_time"), MAYBE_INT),
    "nodes": [object],
}


def of_users(plans: Sequence[Data], job_name: str = "") -> list[Data]:
    """Return the plans of jobs that users started, only those of `job_name` if given, in the same order."""
    # Old plans do not say which playbook asked for the run.
    return [plan for plan in plans if (plan.get("asked_by") or USER) == USER and job_name in ("", plan["job_name"])]


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
    if must_name and not job_id and not job_name:
        expected = f"one of them; the newest runs in {runs_dir}: {_newest(plans)}"
        action = "name the run with -e job_id=NAME, or the newest one of a job with -e job_name=NAME"
        raise FindingsError([Finding("which job", "neither job_id nor job_name", expected, action)], HEADLINE)
    if job_id:
        plan = next((plan for plan in plans if plan["job_id"] == job_id), None)
        note = ""
    else:
        plan, note = _choose(of_users(plans, job_name), must_name, answers or Answers({}, {}))
    if plan is None:
        raise UnusableError(_no_run(plans, job_id, job_name, runs_dir))
    if job_name and plan["job_name"] != job_name:
        found = f"{job_id} is a run of {plan['job_name']}, and job_name is {job_name}"
        raise FindingsError([Finding("job_id and job_name", found, "one job", "leave one of the two out")], HEADLINE)
    return plan, note


def _newest(plans: Sequence[Data]) -> str:
    return ", ".join(plan["job_id"] for plan in of_users(plans)[-5:]) or "none"


def _no_run(plans: Sequence[Data], job_id: str, job_name: str, runs_dir: str) -> str:
    """Return the message that there is no such run, with the runs that exist."""
    requested = job_id or (f"of job {job_name}" if job_name else "at all")
    text = f"No run {requested} was started from {runs_dir}. The newest runs there: {_newest(plans)}. "
    users = of_users(plans)
    others = [] if job_id else [plan["job_id"] for plan in plans if plan not in users]
    own = [name for name in others if not job_name or name.startswith(f"{job_name}-")][-5:]
    if own:
        text += f"Runs of playbooks, which only job_id finds: {', '.join(own)}. "
    return f"{text}Name one with -e job_id=NAME."


def _choose(candidates: Sequence[Data], must_name: bool, answers: Answers) -> tuple[Data | None, str]:
    """Choose the newest run, if possible one that runs, and note other running ones; with `must_name` do not guess."""
    running = [plan for plan in candidates if plan["job_id"] in answers.running]
    places = [_where(plan, answers.running[plan["job_id"]]) for plan in running]
    found, expected = places if len(running) > 1 else [], "one run of that name that still runs"
    if not running:
        unknown = [plan["job_id"] for plan in candidates if plan["job_id"] in answers.unknown]
        found = [f"it is not known whether {name} runs: {answers.unknown[name]}" for name in unknown]
        expected = "an answer from its head node, or job_id"
    if must_name and found:
        action = "name the run with -e job_id=NAME"
        raise FindingsError([Finding("which job", each, expected, action) for each in found], HEADLINE)
    note = ""
    if len(running) > 1:
        note = f"{counted(len(running), 'job')} run; the newest is taken. Name another one with -e job_id=NAME:"
        note = "\n".join([note, *(f"  {place}" for place in places)])
    return next(reversed(running or candidates), None), note


def _where(plan: Data, line: str) -> str:
    """Return since when and where a run runs, and its progress."""
    if line == LAUNCHING:
        return f"{plan['job_id']} is being launched since {plan['created']}"
    hosts = host_list([node["host"] for node in plan["nodes"]])
    start = f"{plan['job_id']} runs since {plan['created']}" + (f" on {hosts}" if hosts else "")
    return ", ".join(filter(None, [start, " ".join(line.split())]))


@dataclass(frozen=True)
class SavedRun:
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
    def of_job(cls, name: str, age_s: float, size_mib: int, plan: Data, begun: bool, record: Data | None) -> SavedRun:
        """Read the run of a job; `begun` is false if findings stopped it or its launch was interrupted."""
        state = record["state"] if record else ""
        nodes = record["nodes"] if record and state in FINAL else _planned_hosts(plan)
        return cls(
            name,
            age_s,
            size_mib,
            started=begun and not plan.get("check"),
            state=state,
            open_hosts=tuple(node["host"] for node in nodes if node.get("state") != "ended"),
            engine=(plan.get("engine") or {}).get("kind", ""),
        )


def _planned_hosts(plan: Data) -> list[Data]:
    return [*plan["nodes"], *plan.get("spares", ()), *filter(None, [plan.get("witness")])]


def may_go(
    saved: Sequence[SavedRun],
    nodes: Mapping[str, Sequence[Folder]],
    silent: Sequence[str],
    job_id: str,
    days: float | None,
    unknown: Mapping[str, str],
) -> tuple[list[SavedRun], dict[str, str]]:
    """Choose what to remove from runs/: the run `job_id`, or all older than `days`; and why others must stay.

    `nodes` has the folders of jobs on nodes that answered and in schedulers, `silent` the nodes that did not answer.
    The newest verification of a cluster stays, for comparison with the next one.
    """
    jobs = by_job(nodes)
    newest = {run.verified: run for run in sorted(saved, key=lambda run: -run.age_s) if run.verified is not None}
    go, stay = [], {}
    for run in saved:
        folders = [folder for _, folder in jobs.get(run.name, ())]
        if days is None:
            chosen = run.name == job_id
        else:
            age_s = min([run.age_s, *(folder.age_s for folder in folders)])
            chosen = age_s > days * DAY_S and run not in newest.values()
        # Running jobs, and those unknown to their scheduler, are reported elsewhere.
        if not chosen or run.name in unknown or any(folder.running for folder in folders):
            continue
        why = _may_run(run, nodes, silent) if run.started and run.verified is None else ""
        if why:
            stay[run.name] = why
        else:
            go.append(run)
    return go, stay


def _may_run(run: SavedRun, nodes: Mapping[str, Sequence[Folder]], silent: Sequence[str]) -> str:
    """Return why the run may still run, or have files that only its plan names; "" if neither can be."""
    missing = [host for host in run.open_hosts if host not in nodes]
    if missing:
        return f"{host_list(missing)} did not say whether it still runs there"
    if run.engine and run.state not in FINAL:
        here = run.name in by_job(nodes)
        return "" if here else f"its record does not say how it ended: playbooks/status.yml -e job_id={run.name}"
    return f"{host_list(silent)} did not say whether it left something there" if run.engine and silent else ""


def describe(go: Sequence[SavedRun], stay: Mapping[str, str], runs_dir: str, check: bool) -> str:
    """Return lines on the removed runs, and on those that must stay."""
    lines = [f"No run to remove from {runs_dir}."]
    if go:
        size = sum(run.size_mib for run in go)
        lines = [f"{'Would remove' if check else 'Removed'} {counted(len(go), 'run')} ({size} MiB) from {runs_dir}."]
    lines += [f"  {name}" for name in sorted(run.name for run in go)]
    return "\n".join([*lines, *(f"  {name} stays: {why}" for name, why in sorted(stay.items()))])
