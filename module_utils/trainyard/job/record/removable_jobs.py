# SPDX-License-Identifier: Apache-2.0
"""Choose the jobs whose files can be removed: those that no longer run anywhere. Ages are seconds.

Objects of a job in Kubernetes count as a folder on a host of that name. While Slurm has a job in its queue, the job
runs on a host of that name. So the answer of a scheduler counts like that of a node.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...base.adhoc import playbook
from ...base.findings import Finding, counted, host_list

DAY_S = 86_400


@dataclass(frozen=True)
class Folder:
    """One job's folder on one node: the time since the last write, and whether the job runs there."""

    job_id: str
    job_dir: str
    age_s: float
    running: bool
    size_mib: int = 0

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Folder:
        """Read a folder as the agent lists it (`folders`)."""
        return cls(data["job_id"], data["job_dir"], float(data["age_s"]), bool(data["running"]), int(data["size_mib"]))


KUBERNETES = "Kubernetes"
SLURM = "Slurm"


def of_schedulers(
    runs: Sequence[Mapping[str, Any]], answers: Mapping[str, Mapping[str, Any]], now: float
) -> tuple[dict[str, list[Folder]], dict[str, str]]:
    """Return the jobs of schedulers as folders, and the jobs that a scheduler does not know, with the reason.

    `runs` are from run_folder.scheduler_runs; `answers` are JobState (schedulers/__init__.py) by job.
    """
    found: dict[str, list[Folder]] = {}
    unknown: dict[str, str] = {}
    for run in runs:
        name = KUBERNETES if run["kind"] == "kubernetes" else SLURM
        answer = answers.get(run["job_id"]) or {}
        if "state" not in answer:
            unknown[run["job_id"]] = str(answer.get("msg") or f"{name} was not asked")
            continue
        running = answer["state"] in ("pending", "running")
        if running or name == KUBERNETES:
            age_s = now - float(answer.get("finished") or run["planned"])
            found.setdefault(name, []).append(Folder(run["job_id"], "", age_s, running))
    return found, unknown


Jobs = dict[str, list[tuple[str, Folder]]]


def by_job(nodes: Mapping[str, Sequence[Folder]]) -> Jobs:
    """Return the folders of each job with their hosts."""
    jobs: Jobs = {}
    for host, folders in nodes.items():
        for folder in folders:
            jobs.setdefault(folder.job_id, []).append((host, folder))
    return jobs


def choose(
    nodes: Mapping[str, Sequence[Folder]],
    job_id: str,
    days: float | None,
    unknown: Mapping[str, str] | None = None,
    recorded: Collection[str] = (),
    inventory: str = "",
) -> tuple[dict[str, list[Folder]], list[Finding]]:
    """Choose what to remove on each node: the job `job_id`, or all that ended more than `days` ago; or findings.

    Jobs that are `unknown` to their scheduler stay. Jobs that are `recorded` need no folder on a node. A job that runs
    on one node keeps its folders on all. Its age is that of the folder that was written last.
    """
    jobs, unknown = by_job(nodes), unknown or {}
    if bool(job_id) == (days is not None):
        found = "a job and clean_days" if job_id else "neither job_id, job_name nor clean_days"
        action = (
            "name a run with -e job_id=NAME, the newest of a job with -e job_name=NAME, or all that ended days ago "
            "with -e clean_days=30"
        )
        return {}, [Finding("what to remove", found, "one of them", action)]
    if days is None:
        finding = _job_finding(jobs, job_id, unknown, recorded, inventory)
        if finding:
            return {}, [finding]
        chosen = {job_id}
    elif days < 0:
        return {}, [Finding("clean_days", str(days), "0 days or more", "correct clean_days")]
    else:
        limit_s = days * DAY_S
        stay = {name for name, at in jobs.items() if any(each.running or each.age_s <= limit_s for _, each in at)}
        chosen = jobs.keys() - stay - unknown.keys()
    return {host: [item for item in folders if item.job_id in chosen] for host, folders in nodes.items()}, []


def _job_finding(
    jobs: Jobs, job_id: str, unknown: Mapping[str, str], recorded: Collection[str], inventory: str
) -> Finding | None:
    """Find why the job `job_id` cannot be removed."""
    ended = "a job that has ended"
    if job_id in unknown:
        return Finding("job_id", f"{job_id}: {unknown[job_id]}", ended, "run this again when it answers")
    if job_id not in jobs and job_id not in recorded:
        names = ", ".join(sorted(jobs)[-5:]) or "none"
        found = f"nothing of {job_id} on any node, or in a scheduler"
        return Finding("job_id", found, f"a job that left something: {names}", "correct job_id")
    running = [host for host, folder in jobs.get(job_id, ()) if folder.running]
    if not running:
        return None
    stop = playbook("playbooks/stop.yml", inventory, {"job_id": job_id})
    return Finding("job_id", f"{job_id} runs on {host_list(running)}", ended, f"wait, or stop it: {stop}")


def describe(
    chosen: Mapping[str, Sequence[Folder]], silent: Mapping[str, str], check: bool, unknown: Mapping[str, str]
) -> str:
    """Return lines on the removed jobs, the nodes without an answer, and the jobs that a scheduler does not know."""
    jobs = by_job(chosen)
    lines = ["Nothing to remove."]
    if jobs:
        places = {host for host, folders in chosen.items() if folders}
        things = [*(["folders"] if places - {KUBERNETES} else []), *(["objects"] if KUBERNETES in places else [])]
        size = sum(folder.size_mib for folders in chosen.values() for folder in folders)
        room = f" ({size} MiB on all nodes)" if "folders" in things else ""
        verb = "Would remove" if check else "Removed"
        lines = [f"{verb} the {' and '.join(things)} of {counted(len(jobs), 'job')}{room}."]
    lines += [f"  {job_id} on {host_list([host for host, _ in at])}" for job_id, at in sorted(jobs.items())]
    alike: dict[str, list[str]] = {}
    for host, why in silent.items():
        alike.setdefault(f" ({why})" if why else "", []).append(host)
    for why, hosts in alike.items():
        lines.append(f"  {host_list(hosts)} could not be asked{why}: run this again when they are back")
    return "\n".join([*lines, *(f"  {job_id} stays: {why}" for job_id, why in sorted(unknown.items()))])
