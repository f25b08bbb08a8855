# SPDX-License-Identifier: Apache-2.0
"""Prepare a job: query its nodes, plan, check. Nothing is started, and all findings of all nodes come at once.

Facts of nodes are cached between launches, so that one visit to each is enough: it checks the node against its part of
the plan, and whether its facts are stale. If there are findings, everything is repeated with fresh facts.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...trainyard.ascend import given_rank_table
from ...trainyard.base import state_format
from ...trainyard.base.findings import Finding, counted
from ...trainyard.job import schedulers
from ...trainyard.job.file import job_packages, specification
from ...trainyard.job.file.job import Job
from ...trainyard.job.file.values import Values
from ...trainyard.job.placement.members import Host, joined
from ...trainyard.job.placement.placement import Member
from ...trainyard.job.plan import busy_devices, image_transfer, images, spares, witness
from ...trainyard.job.plan.plan import JobPlan
from ...trainyard.job.plan.preflight import clock_findings, join
from ...trainyard.job.record import excluded_hosts
from ...trainyard.job.run.logs import log_lines
from ...trainyard.job.schedulers import Plan, own_program
from ...trainyard.job.schedulers.records import Source, SubmittedPlan, Where
from ..nodes.cached_facts import CachedFacts
from ..runs import excluded_record, run_folder
from ..runs.launch_record import launch_record
from . import folder_sharing, source_folder
from .device_queue import DeviceQueue
from .schedulers import scheduler_clients, submission
from .schedulers.scheduler_clients import Answer, Ask

# Host counts. `job_nodes: 0` means every host that is not a spare.
_COUNTS = ("job_nodes", "job_spares")
NO_PLAN = "{count} {findings}: the job cannot be planned, and nothing was started."
WITHOUT = "{count} {findings}: the job starts without such hosts, as it has spares."
NO_JOB = "{count} {findings}: the job cannot run, and nothing was started."


@dataclass(frozen=True)
class Request:
    """A request for a job: its variables, the hosts in the order of their ranks, and the folders and files to use.

    `given` has the names of all variables job_*, to find misspelt ones, `known` all hosts of the inventory, and
    `available` the number of hosts in the job's group. `limit` is the value of --limit, `found` are earlier findings.
    A job of an external scheduler has all hosts of its group in `hosts`, and a `submit_host`.
    """

    job: Mapping[str, Any]
    given: Sequence[str]
    hosts: Sequence[Host]
    available: int
    runs_dir: Path
    state_dir: str
    user: str
    mpi_prefix: str
    all_reduce: str
    venvs: str
    asked_by: str
    facts_file: Path
    limit: str = ""
    check: bool = False
    found: Sequence[Finding] = ()
    submit_host: str = ""
    known: Sequence[str] = ()
    excluded_file: Path | None = None
    follow: Any = ""
    live: bool = False
    # Which nodes are at which switch, for job_rank_order: topology.
    topology: Mapping[str, Any] | None = None
    # Shows a line of progress.
    show: Callable[[str], None] = print

    def facts_arguments(self) -> dict[str, Any]:
        """Return the arguments of the agent's `probe`."""
        return {
            "venv": self.job.get("job_venv") or None,
            "packages": list(job_packages.names(map(str, self.job.get("job_packages") or ()))),
            "user": self.user,
            "mpi_prefix": self.mpi_prefix,
        }


@dataclass
class Prepared:
    """A prepared job. Without findings it is ready: `run_dir`/plan.json holds `plan`."""

    findings: list[Finding]
    headline: str = NO_JOB
    plan: dict[str, Any] = field(default_factory=dict)
    run_dir: Path | None = None
    # The plan for reading, with --check.
    text: str = ""
    # Findings for excluded hosts that spares replace.
    left_out: Sequence[Finding] = ()
    # Lines on excluded hosts that take part again, and why the record could not be written.
    readmitted: Sequence[str] = ()
    warning: str = ""
    # The files of job_source that are not sent, and why.
    not_sent: str = ""


def prepare(request: Request, ask: Ask) -> Prepared:
    """Query, plan and check; write the run's folder if there is a plan."""
    if str(request.job.get("job_scheduler") or "ssh") in schedulers.EXTERNAL:
        return _prepare_external(request, ask)
    job, wrong = _read_job(request)
    if job is None or not request.hosts:
        _, wrong_too = joined(request.hosts, {}, {})
        return Prepared([*wrong, *wrong_too, *request.found], NO_PLAN)
    with _new_run(request, job) as run_dir:
        health: excluded_hosts.HealthChecks = {}
        queue = None
        if job.busy_devices == busy_devices.WAIT and not request.check:
            stopped = functools.partial(run_folder.stopped, run_dir)
            queue = DeviceQueue(ask, request.show, job.wait_timeout_s, stopped)
        made = None
        while made is None:
            made = _prepare(request, ask, job, wrong, run_dir, health, queue)
        return _with_record(request, made, health if job.health_gate else {}, run_dir.name)


def _prepare(
    request: Request,
    ask: Ask,
    job: Job,
    wrong: list[Finding],
    run_dir: Path,
    health: excluded_hosts.HealthChecks,
    queue: DeviceQueue | None,
) -> Prepared | None:
    """Prepare with the nodes as they are; return None after a wait for devices, when that must be done again."""
    planned, findings = _attempts(request, ask, job, run_dir.name, health)
    if not (wrong or findings or request.check) and isinstance(planned.plan, JobPlan):
        brought = _bring_image(request, ask, job, planned.plan)
        if brought is not None:
            job = images.brought(job)
            planned, findings = (planned, brought) if brought else _attempts(request, ask, job, run_dir.name, health)
    if queue and not (wrong or findings):
        findings = queue.visit(planned.node_plans, starts=True)
    excluded = [] if wrong else spares.to_leave_out(job, [host.name for host in request.hosts], findings)
    if excluded:
        rest = dataclasses.replace(request, hosts=[host for host in request.hosts if host.name not in excluded])
        without, still = _attempts(rest, ask, spares.fewer(job, excluded), run_dir.name, health)
        if queue and not still:
            still = queue.visit(without.node_plans, starts=True)
        if not still and without.plan is not None:
            made = _written(request, without.plan, without.source, run_dir, [])
            return dataclasses.replace(made, left_out=findings)
    if queue and not wrong and busy_devices.only(findings):
        findings = queue.wait(planned.node_plans, findings)
        if not findings:
            return None
    findings = [*wrong, *findings]
    if not planned.node_plans:
        return Prepared(findings, NO_PLAN)
    if wrong or planned.findings or planned.plan is None:
        return Prepared(findings)
    return _written(request, planned.plan, planned.source, run_dir, findings)


def _with_record(request: Request, made: Prepared, health: excluded_hosts.HealthChecks, job_id: str) -> Prepared:
    """Record the hosts that `health` excludes, and readmit those that pass."""
    if request.excluded_file is None or not health:
        return made
    silent = [finding for finding in made.left_out if finding.host not in health]
    mute = {finding.host: excluded_hosts.HealthCheck([f"{finding.check}: {finding.found}"]) for finding in silent}
    update = excluded_record.update(request.excluded_file, {**health, **mute}, job_id, request.known, request.check)
    return dataclasses.replace(
        made,
        findings=[excluded_hosts.mark_repeated(finding, health, update.again) for finding in made.findings],
        left_out=[excluded_hosts.mark_repeated(finding, health, update.again) for finding in made.left_out],
        readmitted=update.readmitted,
        warning=update.warning,
    )


def _prepare_external(request: Request, ask: Ask) -> Prepared:
    """Plan a job for a scheduler that places the ranks itself; only the scheduler is queried."""
    job, wrong = schedulers.parse(request.job)
    findings = specification.unknown_keys(request.given) + wrong
    if job is None:
        return Prepared([*findings, *request.found])
    facts, found = _facts_of_scheduler(request, job, ask)
    with _new_run(request, job) as run_dir:
        source = source_folder.read(job.source)
        where = _where(
            request,
            run_dir.name,
            submit_host=request.submit_host,
            hosts=tuple(host.name for host in request.hosts),
            known=tuple(request.known),
            node_env={host.name: host.env for host in request.hosts if host.env},
        )
        plan, planned = schedulers.plan(job, facts, source, where)
        findings = [*found, *findings, *planned, *_unfollowed(request, plan), *request.found]
        if not isinstance(plan, SubmittedPlan) or findings:
            return Prepared(findings)
        made, unfit = submission.rendered(plan, request.job, where, request.mpi_prefix, source)
        return Prepared(unfit) if unfit else _written(request, made, source, run_dir, [])


def _facts_of_scheduler(request: Request, job: Job, ask: Ask) -> tuple[Answer, list[Finding]]:
    if job.scheduler == "kubernetes":
        return scheduler_clients.probe_kubernetes(job)
    shared = job.slurm.folder
    about = {"user": request.user, "folder": shared or request.state_dir, "shared": bool(shared)}
    # The plan reports a host that is not in the inventory.
    host = request.submit_host if request.submit_host in (*request.known, "localhost") else ""
    return scheduler_clients.probe_slurm(host, about, ask, request.limit)


@contextlib.contextmanager
def _new_run(request: Request, job: Job) -> Iterator[Path]:
    """Make the folder of a run; remove it again if it got no plan."""
    _, run_dir = run_folder.new_run(request.runs_dir, job.name)
    try:
        if not request.check:
            run_folder.prepare(run_dir, job.name, request.asked_by)
        yield run_dir
    finally:
        run_folder.forget(run_dir)


def _where(request: Request, job_id: str, **changes: Any) -> Where:
    created = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    given = {name: getattr(request, name) for name in ("state_dir", "user", "all_reduce", "venvs")}
    return Where(job_id=job_id, created=created, **{"submit_host": "", **given, **changes})


def _attempts(
    request: Request, ask: Ask, job: Job, job_id: str, health: excluded_hosts.HealthChecks
) -> tuple[_Planned, list[Finding]]:
    """Plan and check with cached facts of the nodes, and where these may be stale, again with fresh ones.

    Returns the plan and all findings. `health` gets the checks of each host.
    """
    arguments = {**request.facts_arguments(), "image": _image_request(job)}
    about = {**request.job, "image": arguments["image"]}
    facts_file = CachedFacts(request.facts_file, about, {host.name: host.address for host in request.hosts})
    cached = facts_file.read()
    fresh: dict[str, Any] = {}
    silent: dict[str, Answer] = {}
    while True:
        facts = {**cached, **fresh}
        missing = [host.name for host in request.hosts if host.name not in facts and host.name not in silent]
        for host, answer in ask("probe", dict.fromkeys(missing, arguments)).items() if missing else ():
            if "node" in answer:
                facts[host] = fresh[host] = answer["node"]
            else:
                silent[host] = answer
        facts_file.add(fresh)
        members, found = joined(request.hosts, facts, silent, request.limit)
        planned = _plan(request, job, members, job_id)
        planned.findings[:0] = found
        answering = {host: plan for host, plan in planned.node_plans.items() if host not in silent}
        requests = {host: {"node_plan": plan, **arguments} for host, plan in answering.items()}
        checked, planned.plan, shared = folder_sharing.preflight(
            ask, planned.plan, request.user, request.asked_by, requests
        )
        clocks = clock_findings(checked) if job.health_gate else []
        devices = {host: plan["devices"] for host, plan in planned.node_plans.items()}
        health.update(excluded_hosts.health_checks(checked, clocks, devices))
        findings = join([*planned.findings, *request.found, *shared, *clocks], checked, request.limit)
        if not cached or not (findings or any(answer.get("stale") for answer in checked.values())):
            return planned, findings
        for host, answer in checked.items():
            if host == job.restarts.witness:
                # The plan needs none of its facts.
                continue
            if "findings" not in answer:
                silent[host] = answer
            else:
                # Without facts in its answer, the node has confirmed the cached ones.
                fresh[host] = answer.get("node") or facts[host]
        cached = {}


def _image_request(job: Job) -> dict[str, Any] | None:
    if job.image is None:
        return None
    source = source_folder.read(job.source)
    return images.request(job, source.files, source.imported(job.command))


def _bring_image(request: Request, ask: Ask, job: Job, plan: JobPlan) -> list[Finding] | None:
    """Bring the image to the nodes that lack it; return findings, or None where nothing had to be brought."""
    asked = _image_request(job)
    if asked is None:
        return None
    auth = request.job.get("job_registry_auth") or {}
    transfer = image_transfer.Transfer(ask, request.show, request.user, auth)
    return image_transfer.bring(transfer, job, plan.placement.everyone, asked)


def _read_job(request: Request) -> tuple[Job | None, list[Finding]]:
    """Read the variables of the job file, and check its numbers of hosts."""
    findings = specification.unknown_keys(request.given)
    job, wrong = schedulers.parse(request.job)
    findings += wrong
    group = request.job.get("job_hosts")
    # parse() has reported a wrong number, which is 0 here.
    count, spare = map(Values(request.job).number, _COUNTS)
    if not request.available:
        expected = "a group of the inventory with at least one host"
        action = "correct job_hosts, or the inventory (-i)"
        if request.known:
            action = "set job_hosts: all for every host of the inventory, or to a group of it, or correct -i"
        findings.append(Finding("job_hosts", f"no host in {group!r}", expected, action))
    elif count + (spare if count else 0) > request.available:
        requested = counted(count, "node") + (f" and {counted(spare, 'spare')}" if spare else "")
        found = f"{requested} requested, {request.available} in group {group}"
        action = "lower job_nodes or choose another group with job_hosts"
        findings.append(Finding("job_nodes", found, "at most as many nodes as the group has", action))
    if job is not None:
        witnesses = witness.findings(job.restarts.witness, [host.name for host in request.hosts], request.known)
        findings += witnesses
        if witnesses:
            job = dataclasses.replace(job, restarts=dataclasses.replace(job.restarts, witness=""))
    if job is not None:
        job = dataclasses.replace(job, topology=request.topology)
    if job is not None and job.rank_table:
        job = _with_given_table(job, findings)
    return job, findings


def _with_given_table(job: Job, findings: list[Finding]) -> Job:
    """Read the rank table that the job names."""
    path, table = Path(job.rank_table).expanduser(), None
    try:
        table, reason = given_rank_table.read(str(path), path.read_text(encoding="utf-8"))
    except OSError as error:
        reason = f"{error.strerror}"
    except UnicodeDecodeError:
        reason = "no text in UTF-8"
    if table is None:
        places = "a relative path counts from the job file's folder, then from the project's"
        action = f"correct job_rank_table ({places}), or leave it out"
        findings.append(Finding("job_rank_table", f"{path}: {reason}", "a rank table on the controller", action))
    return dataclasses.replace(job, given_table=table)


@dataclass
class _Planned:
    """A plan, the source sent with it, and the findings; without a plan there are no `node_plans`."""

    findings: list[Finding]
    plan: Plan | None
    node_plans: Mapping[str, dict[str, Any]]
    source: Source


def _plan(request: Request, job: Job, members: Sequence[Member], job_id: str) -> _Planned:
    source = source_folder.read(job.source)
    plan, findings = schedulers.plan(job, members, source, _where(request, job_id))
    node_plans = {}
    if isinstance(plan, JobPlan):
        starts = own_program.interpreter(job.command, source)
        node_plans = plan.node_plans(source.files or [], source.imported(job.command), starts)
    return _Planned([*findings, *_unfollowed(request, plan)], plan, node_plans, source)


def _unfollowed(request: Request, plan: Plan | None) -> list[Finding]:
    """Find requested views (follow, live) that this job cannot have."""
    if plan is None or (request.follow in (None, "") and not request.live):
        return []
    return log_lines.findings(plan.as_dict(), request.follow, request.live)


def _written(request: Request, planned: Plan, source: Source, run_dir: Path, findings: list[Finding]) -> Prepared:
    """Write the run's folder; a file with the findings marks a run that was never started."""
    plan = {
        **state_format.stamped(planned.as_dict(), state_format.PLAN),
        "source_left_out": dict(source.left_out),
        "asked_by": request.asked_by,
        "launch": launch_record(request.job, source.archive),
        "check": request.check,
    }
    try:
        _write(plan, planned, source.archive, run_dir, findings)
    except OSError as error:
        # Half of a plan would pass for a run.
        shutil.rmtree(run_dir, ignore_errors=True)
        expected = "room on the controller for the plan and the source of the job"
        action = f"make room in {request.runs_dir}, or set trainyard_runs to another folder"
        found = f"{error.filename or run_dir}: {error.strerror}"
        return Prepared([*findings, Finding("runs folder", found, expected, action)])
    if request.check:
        run_folder.forget_checked(request.runs_dir, planned.job.name, run_dir.name)
    text = planned.describe() if request.check else ""
    return Prepared(findings, NO_JOB, plan, run_dir, text, not_sent=source_folder.left_out_text(source))


def _write(plan: Mapping[str, Any], planned: Plan, archive: bytes, run_dir: Path, findings: Sequence[Finding]) -> None:
    # The plan of thousands of nodes has tens of MiB, which need not be in memory at once.
    with (run_dir / "plan.json").open("w", encoding="utf-8") as file:
        json.dump(plan, file, indent=2)
        file.write("\n")
    (run_dir / "source.tar.gz").write_bytes(archive)
    for name, content in planned.submitted.items():
        (run_dir / name).write_text(content)
    if findings:
        records = [finding.as_dict() for finding in findings]
        (run_dir / "findings.json").write_text(json.dumps(records, indent=2) + "\n")
