# SPDX-License-Identifier: Apache-2.0
"""Plan a job on the hosts of its allocation, check them, and start it: what the controller does over ssh.

The request was written by the controller when the job was submitted (trainyard/job/schedulers/slurm.py).
"""

from __future__ import annotations

import base64
import io
import random
import secrets
import tarfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ....trainyard.cluster.ports import draw_ports
from ....trainyard.cluster.unreachable import reason
from ....trainyard.findings import state_format
from ....trainyard.findings.findings import Finding, render
from ....trainyard.job import schedulers
from ....trainyard.job.file import packages
from ....trainyard.job.file.given_environment import node_environment
from ....trainyard.job.file.job import Job
from ....trainyard.job.placement.placement import Member
from ....trainyard.job.plan import images, imports
from ....trainyard.job.plan import spare_places as spares
from ....trainyard.job.plan.plan import JobPlan, node_plans
from ....trainyard.job.plan.preflight import join
from ....trainyard.job.schedulers import own_program
from ....trainyard.job.schedulers.records import Source, Where
from ...machine.json_files import read_object

Answer = dict[str, Any]
Show = Callable[[str], None]
Ask = Callable[..., Mapping[str, Answer]]
_PORTS = 8
_DRAWN = random.SystemRandom()
START_S = 180.0
WITHOUT = "{count} {findings}: the job starts without such hosts, as it has spares."
NO_JOB = "{count} {findings}: the job cannot run on the hosts of its allocation, and nothing was started."


class CannotRunError(Exception):
    """The job cannot run on these hosts. The text has all findings."""


@dataclass(frozen=True)
class Request:
    """A submitted job: its variables, its packed source, and what the controller knows about the cluster."""

    job: Mapping[str, Any]
    where: Where
    mpi_prefix: str
    archive: bytes
    # The file with the values of job_secret_env, or "".
    secrets: str = ""

    @classmethod
    def read(cls, folder: Path) -> Request:
        """Read it beside the program."""
        given = read_object(folder / "request.json")
        # The plan is made now, which may be days after the job was submitted.
        where = replace(Where(**given["where"]), created=time.strftime("%Y-%m-%dT%H:%M:%S%z"))
        archive = (folder / "source.tar.gz").read_bytes()
        return cls(given["job"], where, given["mpi_prefix"], archive, given.get("secrets", ""))

    def secret_env(self) -> dict[str, str]:
        """Return the values of job_secret_env. Raises CannotRunError without their file."""
        found = read_object(self.secrets) if self.secrets else {}
        if self.secrets and set(found) != set(self.job.get("job_secret_env") or ()):
            raise CannotRunError(f"{self.secrets} lacks values of job_secret_env: launch the job again")
        return {name: str(value) for name, value in found.items()}

    @cached_property
    def source(self) -> Source:
        """Return the packed source folder."""
        with tarfile.open(fileobj=io.BytesIO(self.archive), mode="r:*") as archive:
            return Source([member.name for member in archive if not member.isdir()], self.archive)


def begin(request: Request, addresses: Mapping[str, str], ask: Ask, again: bool, show: Show) -> JobPlan:
    """Plan, check and start the job on hosts by their addresses; return its plan. Raises CannotRunError."""
    job, findings = schedulers.parse({**request.job, "job_scheduler": "ssh"})
    if job is None:
        raise CannotRunError(render(findings, NO_JOB))
    plan, checked = _checked(request, job, addresses, ask)
    if not checked and plan is not None and _bring_image(request, job, plan, ask, show):
        plan, checked = _checked(request, images.brought(job), addresses, ask)
    excluded = spares.to_leave_out(job, list(addresses), checked)
    if excluded:
        show(render(checked, WITHOUT))
        rest = {host: address for host, address in addresses.items() if host not in excluded}
        fewer = replace(job, restarts=replace(job.restarts, spares=job.restarts.spares - len(excluded)))
        plan, checked = _checked(request, fewer, rest, ask)
    if checked or plan is None:
        raise CannotRunError(render(checked, NO_JOB))
    _start(request, plan, ask, again)
    return plan


def _checked(
    request: Request, job: Job, addresses: Mapping[str, str], ask: Ask
) -> tuple[JobPlan | None, list[Finding]]:
    """Plan the job with the facts of the hosts, and have them check their parts."""
    source = request.source
    arguments = {
        "venv": job.venv or None,
        "packages": list(packages.names(job.packages)),
        "user": request.where.user,
        "mpi_prefix": request.mpi_prefix,
        "image": images.request(job, source.files, _imported(job, source)),
    }
    answers = ask("probe", dict.fromkeys(addresses, arguments))
    members, findings = _members(request, addresses, answers)
    made, planned = schedulers.plan(job, members, source, request.where)
    plan = made if isinstance(made, JobPlan) else None
    if plan is None:
        return None, [*findings, *planned]
    starts = own_program.interpreter(job.command, source)
    parts = plan.node_plans(source.files or [], _imported(job, source), starts)
    there = {host: part for host, part in parts.items() if "node" in answers[host]}
    asked = {host: {"node_plan": part, **arguments} for host, part in there.items()}
    return plan, join([*findings, *planned], ask("preflight", asked))


def _imported(job: Job, source: Source) -> list[str]:
    name = imports.script(job.command).removeprefix("./")
    try:
        return imports.imported(source.text(name), source.files or ()) if name in (source.files or ()) else []
    except ValueError:
        return []


def _members(
    request: Request, addresses: Mapping[str, str], answers: Mapping[str, Answer]
) -> tuple[list[Member], list[Finding]]:
    members, findings = [], []
    for host, address in addresses.items():
        env, wrong = node_environment(request.where.node_env.get(host), host)
        findings += wrong
        facts = answers[host].get("node")
        if facts:
            facts = {**facts, "free_ports": draw_ports(facts["unused_ports"], _PORTS, _DRAWN)}
        members.append(Member(host, address, facts, {} if facts else answers[host], env))
    return members, findings


def _bring_image(request: Request, job: Job, plan: JobPlan, ask: Ask, show: Show) -> bool:
    """Have the hosts that lack the image bring it; return whether any did. Raises CannotRunError."""
    facts = {node.host: dict(node.image) for node in plan.placement.everyone}
    waiting = images.to_pull(job.image, {host: {"image": fact} for host, fact in facts.items()})
    if not waiting:
        return False
    asked = images.request(job, request.source.files, _imported(job, request.source))
    image, begins = {**(asked or {}), "auth": None, "source": "", "identity": ""}, True
    while waiting:
        arguments = {"image": {**image, "begin": begins}, "user": request.where.user, "wait_s": 8.0}
        answers = ask("bring_image", {host: {**arguments, "fact": facts[host]} for host in waiting})
        for host in waiting:
            why = str(answers[host].get("problem") or answers[host].get("msg") or "")
            if why:
                raise CannotRunError(f"{host}: {job.image.reference if job.image else ''} could not be brought: {why}")
        waiting, begins = [host for host in waiting if answers[host].get("done") is False], False
        if waiting:
            show(f"image: not yet on {', '.join(waiting[:4])}")
    return True


def _start(request: Request, plan: JobPlan, ask: Ask, again: bool) -> None:
    """Start each host's part. Raises CannotRunError where one does not start, and then nothing of the job runs.

    The folders go, but for those of a job that starts `again`, which have what it has saved.
    """
    made = plan.as_dict()
    shared = {
        "source_archive": base64.b64encode(request.archive).decode(),
        "files": made["files"],
        "user": request.where.user,
        "token": secrets.token_urlsafe(30),
        "secret_env": request.secret_env(),
        "secret_files": {},
        "again": again,
    }
    answers = ask("start", {host: {"node_plan": part, **shared} for host, part in node_plans(made).items()}, START_S)
    failed = {host: answer for host, answer in answers.items() if "known" not in answer}
    if failed:
        job = {"job_id": made["job_id"], "job_dir": made["job_dir"]}
        question, about = ("collect", {**job, "stop": True, "log_limit": 0}) if again else ("remove", job)
        ask(question, {host: about for host in answers if host not in failed})
        lines = [f"{host}: {reason(answer)}" for host, answer in failed.items()]
        raise CannotRunError("\n".join(["The job could not be started, and nothing of it runs:", *lines]))


def recorded(plan: JobPlan, run: int) -> dict[str, Any]:
    """Return the plan as the first host keeps it for the controller; `run` as in Allocation."""
    return {**state_format.stamped(plan.as_dict(), state_format.PLAN), "run": run}
