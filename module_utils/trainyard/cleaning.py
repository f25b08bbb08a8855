# SPDX-License-Identifier: Apache-2.0
"""Which job folders can be removed from the nodes: those of jobs that run nowhere any more. Ages are seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .findings import Finding, host_list

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
        """Read a folder as job_folders_info returns it."""
        return cls(data["job_id"], data["job_dir"], float(data["age_s"]), bool(data["running"]), int(data["size_mib"]))


def choose(
    nodes: Mapping[str, Sequence[Folder]], job_id: str, days: float | None
) -> tuple[dict[str, list[Folder]], list[Finding]]:
    """Choose what to remove on each node: the job `job_id`, or all that ended more than `days` ago; and what is wrong.

    A job that runs on one node keeps its folders on all: those of the others belong to its end. The same holds for its
    age, which is that on the node where it wrote last.
    """
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
                "",
                "what to remove",
                "both job_id and clean_days" if job_id else "neither job_id nor clean_days",
                "one of them",
                "name a job with -e job_id=NAME, or all that ended days ago with -e clean_days=30",
            )
        )
    elif days is not None and days < 0:
        findings.append(Finding("", "clean_days", str(days), "0 days or more", "correct clean_days"))
    elif job_id and job_id not in hosts:
        known = ", ".join(sorted(hosts)[-5:]) or "none"
        findings.append(
            Finding(
                "", "job_id", f"no folder of {job_id} on any node", f"a job that ran here: {known}", "correct job_id"
            )
        )
    elif job_id in running:
        findings.append(
            Finding(
                "",
                "job_id",
                f"{job_id} runs on {host_list(running[job_id])}",
                "a job that has ended",
                f"wait, or stop it: ansible-playbook playbooks/stop.yml -e job_id={job_id}",
            )
        )
    if findings:
        return {}, findings
    ended = set(hosts) - set(running)
    chosen = {job_id} if days is None else {name for name in ended if age_s[name] > days * DAY_S}
    return {host: [item for item in folders if item.job_id in chosen] for host, folders in nodes.items()}, []


def describe(chosen: Mapping[str, Sequence[Folder]], silent: Sequence[str], check: bool) -> str:
    """Say what is removed, job by job, and which nodes could not be asked."""
    by_job: dict[str, list[str]] = {}
    for host, folders in chosen.items():
        for folder in folders:
            by_job.setdefault(folder.job_id, []).append(host)
    size = sum(folder.size_mib for folders in chosen.values() for folder in folders)
    verb = "Would remove" if check else "Removed"
    number = len(by_job)
    lines = [f"{verb} the folders of {number} job{'' if number == 1 else 's'} ({size} MiB on all nodes)."]
    lines += [f"  {job_id} on {host_list(hosts)}" for job_id, hosts in sorted(by_job.items())]
    if not by_job:
        lines = ["Nothing to remove."]
    if silent:
        lines.append(f"  {host_list(silent)} could not be asked: run this again when they are back")
    return "\n".join(lines)
