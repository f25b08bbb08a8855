# SPDX-License-Identifier: Apache-2.0
"""The runs that this controller started: which one is meant by job_id and job_name, and which may go from runs/.

What a playbook runs to learn something (a check of collectives, a benchmark, pairs) is a job like any other, but nobody
means it by "the newest": it is found by its job_id alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..findings.findings import Finding, host_list, render
from .cleaning import DAY_S, Folder
from .run_record import FINAL

Data = Mapping[str, Any]

# Who asked for a run: launch.yml for its user, or a playbook for itself, by its name.
USER = "launch.yml"
HEADLINE = "{count} {findings}: no job was chosen, and nothing was touched."


def asked_by(plan: Data) -> str:
    """Name the playbook that wanted the run; plans of older releases do not say."""
    return str(plan.get("asked_by") or USER)


def find(plans: Sequence[Data], job_id: str, job_name: str, must_name: bool, runs_dir: str) -> tuple[Data | None, str]:
    """Return the plan of the run that is meant, the newest of several; or what to say as there is none.

    `plans` are those of all runs, oldest first. Without job_id and job_name it is the newest of all, unless one
    `must_name` it: what ends or removes something takes no guess.
    """
    of_users = [plan for plan in plans if asked_by(plan) == USER]
    newest = ", ".join(plan["job_id"] for plan in of_users[-5:]) or "none"
    if must_name and not job_id and not job_name:
        unnamed = Finding(
            check="which job",
            found="neither job_id nor job_name",
            expected=f"one of them; the newest runs in {runs_dir}: {newest}",
            action="name the run with -e job_id=NAME, or the newest one of a job with -e job_name=NAME",
        )
        return None, render([unnamed], HEADLINE)
    if job_id:
        plan = next((plan for plan in plans if plan["job_id"] == job_id), None)
    else:
        plan = next((plan for plan in reversed(of_users) if not job_name or plan["job_name"] == job_name), None)
    if plan is None:
        wanted = job_id or (f"of job {job_name}" if job_name else "at all")
        others = [] if job_id else [plan["job_id"] for plan in plans if plan not in of_users]
        own = [name for name in others if not job_name or name.startswith(f"{job_name}-")][-5:]
        text = f"No run {wanted} was started from {runs_dir}. The newest runs there: {newest}. "
        if own:
            text += f"Playbooks ran for themselves, and are found by job_id alone: {', '.join(own)}. "
        return None, text + "Name one with -e job_id=NAME."
    if job_name and plan["job_name"] != job_name:
        two = Finding(
            check="job_id and job_name",
            found=f"{job_id} is a run of {plan['job_name']}, and job_name is {job_name}",
            expected="one job",
            action="leave one of the two out",
        )
        return None, render([two], HEADLINE)
    return plan, ""


@dataclass(frozen=True)
class Kept:
    """A folder in runs/: the record of a job, or of a proof (verify.yml), whose cluster it has then.

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
    def of_job(cls, name: str, age_s: float, size_mib: int, plan: Data, found: bool, record: Data | None) -> Kept:
        """Read the run of a job; `found` says whether there are findings beside its plan."""
        state = record["state"] if record else ""
        nodes = record["nodes"] if record and state in FINAL else [*plan["nodes"], *plan.get("spares", ())]
        return cls(
            name,
            age_s,
            size_mib,
            started=not plan.get("check") and not found,
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
    The newest proof of a cluster stays, so that the next one can be compared with it.
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
