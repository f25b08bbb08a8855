# SPDX-License-Identifier: Apache-2.0
"""Plan a job on the hosts of its allocation, check them, and start it: what the controller does over ssh.

The request was written by the controller when the job was submitted (trainyard/job/schedulers/slurm.py).
"""

from __future__ import annotations

import base64
import io
import json
import tarfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from zipimport import zipimporter

from ....trainyard.base import state_format
from ....trainyard.base.findings import Finding, render
from ....trainyard.cluster.unreachable import reason
from ....trainyard.job import schedulers
from ....trainyard.job.file import event_receivers, job_packages
from ....trainyard.job.file.job import Job
from ....trainyard.job.placement.members import Host, joined
from ....trainyard.job.plan import image_transfer, images, spares
from ....trainyard.job.plan.plan import JobPlan, node_plans
from ....trainyard.job.plan.preflight import join
from ....trainyard.job.run.lead import leader
from ....trainyard.job.schedulers import own_program
from ....trainyard.job.schedulers.records import Source, Where
from . import private_file

Answer = dict[str, Any]
Show = Callable[[str], None]
Ask = Callable[..., Mapping[str, Answer]]
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
    # The file with the secrets (private_file.py), or "".
    secrets: str = ""
    # The working folder of a pod's ranks where the image or a volume has the code.
    code_dir: str = ""

    @classmethod
    def read(cls, program: str) -> Request:
        """Read it in the program."""
        packed = zipimporter(program)
        given = json.loads(packed.get_data("request.json"))
        # The plan is made now, which may be days after the job was submitted.
        where = replace(Where(**given["where"]), created=time.strftime("%Y-%m-%dT%H:%M:%S%z"))
        # A pod has it as a volume.
        volume = given.get("archive")
        archive = Path(volume).read_bytes() if volume else packed.get_data("source.tar.gz")
        private, code_dir = given.get("secrets", ""), given.get("code_dir", "")
        return cls(given["job"], where, given["mpi_prefix"], archive, private, code_dir)

    def parsed(self) -> Job:
        """Return the job with what its file of secrets has. Raises CannotRunError without that file."""
        job, findings = schedulers.parse({**self.job, "job_scheduler": "ssh"})
        if job is None:
            raise CannotRunError(render(findings, NO_JOB))
        private = private_file.read(self.secrets)
        if set(private["secret_env"]) != set(job.secret_env) or (job.tls and not private["secret_files"]):
            raise CannotRunError(f"{self.secrets} lacks values of job_secret_env: launch the job again")
        events = private_file.content(private, private_file.EVENTS)
        receivers = tuple(event_receivers.shown(events.get("receivers", ())))
        return replace(job, events=replace(job.events, receivers=receivers))

    @cached_property
    def source(self) -> Source:
        """Return the packed source folder, without files where the ranks have it already."""
        if not self.archive:
            return Source(None)
        with tarfile.open(fileobj=io.BytesIO(self.archive), mode="r:*") as archive:
            return Source([member.name for member in archive if not member.isdir()], self.archive)


def begin(request: Request, addresses: Mapping[str, str], ask: Ask, again: bool, show: Show) -> JobPlan:
    """Plan, check and start the job on hosts by their addresses; return its plan. Raises CannotRunError."""
    job = request.parsed()
    plan, checked = _checked(request, job, addresses, ask)
    if not checked and plan is not None and _bring_image(request, job, plan, ask, show):
        plan, checked = _checked(request, images.brought(job), addresses, ask)
    excluded = spares.to_leave_out(job, list(addresses), checked)
    if excluded:
        show(render(checked, WITHOUT))
        rest = {host: address for host, address in addresses.items() if host not in excluded}
        plan, checked = _checked(request, spares.fewer(job, excluded), rest, ask)
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
        "packages": list(job_packages.names(job.packages)),
        "user": request.where.user,
        "mpi_prefix": request.mpi_prefix,
        "image": images.request(job, source.files, source.imported(job.command)),
    }
    answers = ask("probe", dict.fromkeys(addresses, arguments))
    hosts = (Host(host, address, request.where.node_env.get(host)) for host, address in addresses.items())
    facts = {host: answer["node"] for host, answer in answers.items() if "node" in answer}
    members, findings = joined(hosts, facts, answers)
    made, planned = schedulers.plan(job, members, source, request.where)
    plan = made if isinstance(made, JobPlan) else None
    if plan is None:
        return None, [*findings, *planned]
    starts = own_program.interpreter(job.command, source)
    parts = plan.node_plans(source.files or [], source.imported(job.command), starts)
    asked = {host: {"node_plan": part, **arguments} for host, part in parts.items() if host in facts}
    return plan, join([*findings, *planned], ask("preflight", asked))


def _bring_image(request: Request, job: Job, plan: JobPlan, ask: Ask, show: Show) -> bool:
    """Have the hosts that lack the image bring it; return whether any did. Raises CannotRunError."""
    asked = images.request(job, request.source.files, request.source.imported(job.command))

    def ask_with_login(question: str, arguments: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Answer]:
        # Each host reads the login of the registry itself.
        return ask(question, {host: {**own, "secrets": request.secrets} for host, own in arguments.items()})

    transfer = image_transfer.Transfer(ask_with_login, show, request.where.user, {})
    findings = image_transfer.bring(transfer, job, plan.placement.everyone, asked or {})
    if findings:
        raise CannotRunError(render(findings, NO_JOB))
    return findings is not None


def _start(request: Request, plan: JobPlan, ask: Ask, again: bool) -> None:
    """Start each host's part. Raises CannotRunError where one does not start, and then nothing of the job runs.

    The folders go, but for those of a job that starts `again`, which have what it has saved.
    """
    made = plan.as_dict()
    shared = {
        "source_archive": base64.b64encode(request.archive).decode(),
        "files": made["files"],
        "user": request.where.user,
        "secrets": request.secrets,
        "again": again,
    }
    leading = leader.hosts(made)
    about = {"code_dir": request.code_dir, "started_once": True}
    parts = {host: {**part, **about} for host, part in node_plans(made).items()}
    own = {host: {"node_plan": part, "leads": host in leading} for host, part in parts.items()}
    answers = ask("start", {host: {**shared, **each} for host, each in own.items()}, START_S)
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
