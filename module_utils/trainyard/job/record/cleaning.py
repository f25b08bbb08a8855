# SPDX-License-Identifier: Apache-2.0
"""Which jobs leave something that can be removed: those that run nowhere any more. Ages are seconds.

What a job has in Kubernetes counts as one more folder, on a host of that name; and while Slurm has a job in its queue,
the job runs on one of that name. So the scheduler's word weighs as much as that of any node.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...findings.adhoc import playbook
from ...findings.findings import Finding, counted, host_list

DAY_S = 86_400


@dataclass(frozen=True)
class Folder:
    """One job's folder on one node: when something of the job last wrote there, and whether anything of it runs."""

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
    """Return what the schedulers say of their jobs as folders, and the jobs of which they say nothing, with the reason.

    `runs` are those of run_folder.scheduler_runs; `answers` are JobState (schedulers/__init__.py) by job.
    """
    found: dict[str, list[Folder]] = {}
    unknown: dict[str, str] = {}
    for run in runs:
        name = KUBERNETES if run["kind"] == "kubernetes" else SLURM
        answer = answers.get(run["job_id"]) or {}
        if "state" not in answer:
            unknown[run["job_id"]] = str(answer.get("msg") or f"{name} was not asked how it is")
            continue
        running = answer["state"] in ("pending", "running")
        if running or name == KUBERNETES:
            age_s = now - float(answer.get("finished") or run["planned"])
            found.setdefault(name, []).append(Folder(run["job_id"], "", age_s, running))
    return found, unknown


def choose(
    nodes: Mapping[str, Sequence[Folder]],
    job_id: str,
    days: float | None,
    unknown: Mapping[str, str] | None = None,
    recorded: Collection[str] = (),
    inventory: str = "",
) -> tuple[dict[str, list[Folder]], list[Finding]]:
    """Choose what to remove on each node: the job `job_id`, or all that ended more than `days` ago; and what is wrong.

    Jobs that are `unknown` to their scheduler stay. Of those that are `recorded` something else is to be removed.

    A job that runs on one node keeps its folders on all: those of the others belong to its end. The same holds for its
    age, which is that on the node where it wrote last.
    """
    unknown = unknown or {}
    hosts: dict[str, list[str]] = {}
    running: dict[str, list[str]] = {}
    age_s: dict[str, float] = {}
    for host, folders in nodes.items():
        for folder in folders:
            hosts.setdefault(folder.job_id, []).append(host)
            age_s[folder.job_id] = min(folder.age_s, age_s.get(folder.job_id, folder.age_s))
            if folder.running:
                running.setdefault(folder.job_id, []).append(host)
    findings = []
    if bool(job_id) == (days is not None):
        findings.append(
            Finding(
                "what to remove",
                "a job and clean_days" if job_id else "neither job_id, job_name nor clean_days",
                "one of them",
                (
                    "name a run with -e job_id=NAME, the newest of a job with -e job_name=NAME, or all that ended days "
                    "ago with -e clean_days=30"
                ),
            )
        )
    elif days is not None and days < 0:
        findings.append(Finding("clean_days", str(days), "0 days or more", "correct clean_days"))
    elif job_id and job_id in unknown:
        findings.append(
            Finding("job_id", f"{job_id}: {unknown[job_id]}", "a job that has ended", "run this again when it answers")
        )
    elif job_id and job_id not in hosts and job_id not in recorded:
        known = ", ".join(sorted(hosts)[-5:]) or "none"
        where = "on any node, or in a scheduler"
        findings.append(
            Finding("job_id", f"nothing of {job_id} {where}", f"a job that left something: {known}", "correct job_id")
        )
    elif job_id in running:
        findings.append(
            Finding(
                "job_id",
                f"{job_id} runs on {host_list(running[job_id])}",
                "a job that has ended",
                f"wait, or stop it: {playbook('playbooks/stop.yml', inventory, {'job_id': job_id})}",
            )
        )
    if findings:
        return {}, findings
    ended = set(hosts) - set(running) - set(unknown)
    chosen = {job_id} if days is None else {name for name in ended if age_s[name] > days * DAY_S}
    return {host: [item for item in folders if item.job_id in chosen] for host, folders in nodes.items()}, []


def describe(
    chosen: Mapping[str, Sequence[Folder]],
    silent: Mapping[str, str],
    check: bool,
    unknown: Mapping[str, str] | None = None,
) -> str:
    """Say what is removed, job by job, which nodes could not be asked, and of which jobs a scheduler says nothing."""
    by_job: dict[str, list[str]] = {}
    for host, folders in chosen.items():
        for folder in folders:
            by_job.setdefault(folder.job_id, []).append(host)
    size = sum(folder.size_mib for folders in chosen.values() for folder in folders)
    verb = "Would remove" if check else "Removed"
    number = len(by_job)
    places = {host for hosts in by_job.values() for host in hosts}
    things = " and ".join(
        [*(["folders"] if places - {KUBERNETES} else []), *(["objects"] if KUBERNETES in places else [])]
    )
    room = f" ({size} MiB on all nodes)" if "folders" in things else ""
    lines = [f"{verb} the {things} of {counted(number, 'job')}{room}."]
    lines += [f"  {job_id} on {host_list(hosts)}" for job_id, hosts in sorted(by_job.items())]
    if not by_job:
        lines = ["Nothing to remove."]
    alike: dict[str, list[str]] = {}
    for host, why in silent.items():
        alike.setdefault(why, []).append(host)
    for why, hosts in alike.items():
        because = f" ({why})" if why else ""
        lines.append(f"  {host_list(hosts)} could not be asked{because}: run this again when they are back")
    lines += [f"  {job_id} stays: {why}" for job_id, why in sorted((unknown or {}).items())]
    return "\n".join(lines)
