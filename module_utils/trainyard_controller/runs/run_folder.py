# SPDX-License-Identifier: Apache-2.0
"""The folder of a run on the controller."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...trainyard.base import state_format
from ...trainyard.base.adhoc import playbook
from ...trainyard.base.findings import Finding, failure
from ...trainyard.job.plan import witness
from ...trainyard.job.record import job_ids, job_runs
from ...trainyard.job.record.job_runs import SavedRun
from ...trainyard.job.run.interrupted import commands
from ...trainyard_node.job.run.ranks import process_table
from ...trainyard_node.machine.json_files import write_json
from ...trainyard_node.machine.tree import size_of
from .inventory_options import inventory_given
from .locks import locked
from .saved_state import NotReadError, read, read_plan, read_record, read_report

_LOG = re.compile(r"\w[\w.-]{0,99}", re.ASCII)
# File in the folder of a run, with the process that launches it, until the first node is visited to start it.
_NOT_STARTED = "not-started"
# File that stop.yml writes before that.
_STOP = "stop-requested"
# Seconds after which a launch that has started nothing counts as ended.
_LAUNCH_S = 3600.0


class StoppedError(Exception):
    """The job was stopped before anything of it was started."""


def write_logs(run_dir: Path, logs: Mapping[str, str], keep: bool) -> None:
    """Write logs that a node sent, in base64 by name; with `keep`, an earlier and longer log stays.

    The node chose names and contents: anything but a plain name and base64 is ignored. Raises NotWrittenError.
    """
    try:
        (run_dir / "logs").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NotWrittenError(run_dir / "logs", error) from error
    for name, content in logs.items():
        if not _LOG.fullmatch(name):
            continue
        file = (run_dir if name == "metrics.jsonl" else run_dir / "logs") / name
        try:
            log = base64.b64decode(content)
        except ValueError:
            continue
        if not (keep and file.exists() and file.stat().st_size > len(log)):
            write_whole(file, log)


def new_run(runs_dir: Path, name: str) -> tuple[str, Path]:
    """Make the folder of a new run. Its id sorts by time.

    The last digits are random, because another controller may launch a job of this name in the same second.
    """
    runs_dir.mkdir(parents=True, exist_ok=True)
    while True:
        job_id = job_ids.make(name, time.strftime("%Y%m%d-%H%M%S"), secrets.token_hex(2))
        with contextlib.suppress(FileExistsError):
            (runs_dir / job_id).mkdir()
            return job_id, runs_dir / job_id


def findings(runs_dir: Path) -> list[Finding]:
    """Find that runs cannot be written to this folder, which may not exist yet; nothing is created."""
    there = next(each for each in (runs_dir, *runs_dir.absolute().parents) if os.path.lexists(each))
    try:
        # The file has no name, so nobody can see it.
        tempfile.TemporaryFile(dir=there).close()
    except OSError as error:
        # /proc exists, and reports so for a file that is to be made there.
        reason = "nobody can make files there" if isinstance(error, FileNotFoundError) else error.strerror
        found = f"{there}: {reason}" + ("" if there == runs_dir else f", and there is no {runs_dir}")
        expected = "a folder on the controller that the user of ansible-playbook may write"
        action = "set trainyard_runs to such a folder, or give the right to write"
        return [Finding("trainyard_runs", found, expected, action)]
    return []


def forget_checked(runs_dir: Path, name: str, keep: str) -> None:
    """Remove the runs of earlier --check of this job, as each holds the source."""
    for plan_file in runs_dir.glob(f"{name}-*/plan.json"):
        run_dir = plan_file.parent
        # Runs that were started need not be read: a plan of a thousand nodes takes a while.
        if run_dir.name == keep or (run_dir / "logs").exists() or (run_dir / "summary.json").exists():
            continue
        with contextlib.suppress(NotReadError):
            plan = read_plan(run_dir)
            if plan.get("check") and plan["job_name"] == name:
                shutil.rmtree(run_dir, ignore_errors=True)


class NotWrittenError(OSError):
    """A file of a run's folder cannot be written; its old content is unchanged."""

    def __init__(self, path: Path, error: OSError) -> None:
        """Take the file and the system's error."""
        super().__init__(error.errno, error.strerror or str(error), str(path))

    def failure(self, run_dir: Path) -> dict[str, Any]:
        """Return the result of the task that fails with this error, with the commands for the job."""
        logs = playbook("playbooks/logs.yml", inventory_given(), {"job_id": run_dir.name})
        found = f"cannot write {self.filename}: {self.strerror}"
        expected = "a folder that can be written, with room for the job's logs and report"
        action = f"make room, or the folder writable, then: {logs}"
        headline = "{count} {findings}: the report is not complete; the job itself is not touched by this."
        failed = failure([Finding("run folder", found, expected, action, host="localhost")], headline)
        return {**failed, "msg": f"{failed['msg']}\n{commands(run_dir.name, inventory_given())}"}


def write_whole(path: Path, content: str | bytes) -> None:
    """Replace a file atomically. Raises NotWrittenError."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        aside.write_bytes(content.encode() if isinstance(content, str) else content)
        aside.replace(path)
    except OSError as error:
        # Half a file would only take up room. A read-only file system removes nothing, not even what is not there.
        with contextlib.suppress(OSError):
            aside.unlink()
        raise NotWrittenError(path, error) from error


def read_removed(run_dir: Path) -> dict[str, float]:
    """Return when clean.yml removed the job's folders, by host."""
    found = read(run_dir / "removed.json", state_format.REMOVED, job_runs.REMOVED)
    return dict(found["hosts"]) if found else {}


def note_removed(run_dir: Path, times: Mapping[str, float]) -> None:
    """Record when the job's folders were removed, unless another controller started the run."""
    if (run_dir / "plan.json").is_file():
        try:
            before = read_removed(run_dir)
        except NotReadError as error:
            if not error.damaged:
                raise
            before = {}
        removed = {"hosts": {**before, **times}}
        write_json(run_dir / "removed.json", state_format.stamped(removed, state_format.REMOVED))


def prepare(run_dir: Path, job_name: str, asked_by: str) -> None:
    """Record that a run is being launched but not started, so that an interrupt leaves no run behind."""
    # The task runs in a child process of ansible-playbook.
    command = os.getppid()
    launch = {
        "job_id": run_dir.name,
        "job_name": job_name,
        "asked_by": asked_by,
        "nodes": [],
        "created": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "machine": os.uname().nodename,
        "pid": command,
        "start_time": process_table.start_time(command),
    }
    write_json(run_dir / _NOT_STARTED, launch)


def forget(run_dir: Path) -> None:
    """Remove the folder of a launch that has planned nothing."""
    if not (run_dir / "plan.json").exists():
        for name in (_NOT_STARTED, _STOP):
            (run_dir / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            run_dir.rmdir()
            run_dir.parent.rmdir()


@contextlib.contextmanager
def starting(run_dir: Path) -> Iterator[None]:
    """Record that the run starts; stop.yml waits for the end of this block. Raises StoppedError."""
    with locked(run_dir):
        if (run_dir / _STOP).exists():
            raise StoppedError
        (run_dir / _NOT_STARTED).unlink(missing_ok=True)
        yield


def stop_launch(run_dir: Path, on_wait: Callable[[], None] = lambda: None) -> bool:
    """Stop a launch before it starts anything; return False if it has started its nodes already."""
    with locked(run_dir, on_wait):
        if not (run_dir / _NOT_STARTED).exists():
            return False
        (run_dir / _STOP).touch()
        return True


def stopped(run_dir: Path) -> bool:
    """Return whether a launch that waits was stopped; else keep it among the launches that have not ended."""
    with contextlib.suppress(OSError):
        os.utime(run_dir / _NOT_STARTED)
    return (run_dir / _STOP).exists()


def launches(runs_dir: Path) -> list[dict[str, Any]]:
    """Return the launches that have not started anything yet, oldest first, like plans without nodes."""
    found = []
    for path in runs_dir.glob(f"*/{_NOT_STARTED}"):
        ended = (path.parent / "findings.json").exists() or (path.parent / _STOP).exists()
        with contextlib.suppress(NotReadError):
            launch = read(path, state_format.LAUNCH, job_runs.LAUNCH)
            if launch and launch["job_id"] == path.parent.name and not ended and _may_run(launch, path):
                found.append(launch)
    return sorted(found, key=lambda launch: (launch["created"], launch["job_id"]))


def _may_run(launch: Mapping[str, Any], mark: Path) -> bool:
    """Tell whether the command that launches a run may still be running."""
    elsewhere = launch["machine"] != os.uname().nodename
    return time.time() - mark.stat().st_mtime < _LAUNCH_S and (
        elsewhere or process_table.start_time(launch["pid"]) == launch["start_time"]
    )


def _was_started(run_dir: Path) -> bool:
    return not any((run_dir / name).exists() for name in ("findings.json", _NOT_STARTED))


def read_plans(runs_dir: Path) -> list[dict[str, Any]]:
    """Read the plans of all jobs that were started, oldest first, but those that cannot be read."""
    return read_all_plans(runs_dir)[0]


def read_all_plans(runs_dir: Path) -> tuple[list[dict[str, Any]], dict[str, Finding]]:
    """Return the same plans, and by the name of the run why others cannot be read.

    Plans of --check, beside findings, or of an interrupted launch were never started.
    """
    plans, unread = [], {}
    for path in sorted(runs_dir.glob("*/plan.json")):
        try:
            plan = _own_plan(path.parent)
            if not plan.get("check") and _was_started(path.parent):
                # A reading of many runs must not fail because of one.
                read_submitted(runs_dir, path.parent.name)
                read_removed(path.parent)
                plans.append((path.stat().st_mtime, plan))
        except OSError:
            # It was removed meanwhile.
            continue
        except NotReadError as error:
            # A launch may just be writing it.
            if path.is_file() and _was_started(path.parent):
                unread[path.parent.name] = error.finding
    return [plan for _, plan in sorted(plans, key=lambda item: (item[0], item[1]["job_id"]))], unread


def _own_plan(run_dir: Path) -> dict[str, Any]:
    """Return the plan of a run, whose folder has the name of the job. Raises NotReadError."""
    plan = read_plan(run_dir)
    if plan["job_id"] != run_dir.name:
        why = f"job_id is {plan['job_id']!r}, expected {run_dir.name!r}, the name of its folder"
        raise NotReadError(run_dir / "plan.json", why, state_format.PLAN)
    return plan


def saved_runs(runs_dir: Path, now: float) -> tuple[list[SavedRun], dict[str, Finding]]:
    """List the folders of jobs and verifications in runs/, recognized by the files in them.

    Also return, by the name of the run, why others cannot be read.
    """
    found, unread = [], {}
    for run_dir in sorted(runs_dir.iterdir()) if runs_dir.is_dir() else ():
        if run_dir.is_symlink() or not run_dir.is_dir():
            continue
        files = [run_dir / name for name in ("plan.json", "summary.json", "report.json")]
        age_s = now - max((file.stat().st_mtime for file in files if file.exists()), default=now)
        size_mib = size_of(run_dir) >> 20
        if (run_dir / "plan.json").is_file():
            try:
                plan, summary = _own_plan(run_dir), read_record(run_dir)
                found.append(SavedRun.of_job(run_dir.name, age_s, size_mib, plan, _was_started(run_dir), summary))
            except NotReadError as error:
                unread[run_dir.name] = error.finding
        elif run_dir.name.startswith("verify-") and (run_dir / "report.json").is_file():
            try:
                cluster = read_report(run_dir / "report.json")["cluster"]
                found.append(SavedRun(run_dir.name, age_s, size_mib, verified=cluster))
            except NotReadError as error:
                unread[run_dir.name] = error.finding
    return found, unread


def read_submitted(runs_dir: Path, job_id: str) -> dict[str, Any]:
    """Return `engine_id`, and `removed` if nothing of the job is left; {} for a job that was not submitted."""
    return read(runs_dir / job_id / "submitted.json", state_format.SUBMITTED, job_runs.SUBMITTED) or {}


def note_submitted(run_dir: Path, engine_id: str, *, removed: bool = False) -> None:
    """Record the scheduler's name for the job; `removed` if nothing of it is left there."""
    record = {"engine_id": engine_id, **({"removed": True} if removed else {})}
    record = state_format.stamped(record, state_format.SUBMITTED)
    write_whole(run_dir / "submitted.json", json.dumps(record) + "\n")


def scheduler_of(plan: Mapping[str, Any], runs_dir: Path) -> dict[str, Any]:
    """Return the scheduler of a job, its name for the job, and the job's data that its client needs."""
    needed = {name: plan[name] for name in ("world_size", "rank_log", "progress_pattern", "secret_env")}
    engine_id = read_submitted(runs_dir, plan["job_id"]).get("engine_id", "")
    return {**plan["engine"], **needed, "engine_id": engine_id}


def witnesses(runs_dir: Path, plans: Sequence[Mapping[str, Any]]) -> set[str]:
    """Return the witnesses of these runs on which clean.yml has not removed the folder of the job."""
    found = {plan["job_id"]: witness.host(plan) for plan in plans if "witness" in plan}
    return {host for job_id, host in found.items() if host not in read_removed(runs_dir / job_id)}


def scheduler_runs(runs_dir: Path, plans: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return those of these runs that were submitted and may have left something; `planned` is the time of the plan."""
    return [
        {
            **scheduler_of(plan, runs_dir),
            "job_id": plan["job_id"],
            "job_dir": plan["job_dir"],
            "planned": (runs_dir / plan["job_id"] / "plan.json").stat().st_mtime,
        }
        for plan in plans
        if "engine" in plan
        for submitted in [read_submitted(runs_dir, plan["job_id"])]
        if submitted and not submitted.get("removed")
    ]
