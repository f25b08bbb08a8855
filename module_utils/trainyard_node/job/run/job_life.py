# SPDX-License-Identifier: Apache-2.0
"""Start, stop and describe a job on this node, in a systemd unit or without.

The job's folder is read and written as the job's user (job_folder.py). The processes to end are found by units, cgroups
and ids, never by files of that folder.
"""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ....trainyard.base.shapes import as_time
from ....trainyard.job.plan import busy_devices
from ....trainyard.job.record import job_ids
from ....trainyard.job.run.logs.failures import exit_text
from ...machine import as_user
from ...machine.as_user import JobError, Owner
from ..record.secrets import forget_secrets
from . import folder_removal, job_folder
from .evidence import strays
from .packing import packed
from .ranks import container, folders, process_table, stop_grace, units

NodePlan = dict[str, Any]
# How long a monitor may take to start on a busy node, and the pause between two checks, in seconds.
COME_UP_S, _POLL_S = 60.0, 0.5
SILENT = "it printed nothing"


class TakenError(JobError):
    """Another launch uses this job's id here; nothing was changed."""


def has_systemd() -> bool:
    """Return whether systemd is PID 1 and we may make system units."""
    return units.SYSTEMD_RUNNING.is_dir() and os.geteuid() == 0


def unit_of(job_id: str) -> str:
    """Return the name of a job's unit; "" without systemd."""
    return units.unit_name(job_id) if has_systemd() else ""


def _identity(job_dir: Path, job_id: str) -> tuple[str, str, int | None]:
    """Return what identifies a job's processes: its id, unit and user. Raises JobError for an invalid id."""
    if not job_ids.is_valid(job_id):
        raise JobError(f"job_id {job_id!r}: expected small letters, digits and hyphens")
    owner = as_user.of_job(job_dir)
    return job_id, unit_of(job_id), owner.uid if owner else None


def _in_folder(job_dir: Path, without: Any, function: Callable[..., Any], *arguments: Any, **limits: float) -> Any:
    """Call a function as the user of the job's folder; return `without` where there is none, or its files are damaged.

    Nothing in the folder may keep anyone from ending the job.
    """
    try:
        return as_user.in_folder(job_dir, without, function, *arguments, **limits)
    except (JobError, ArithmeticError, AttributeError, LookupError, OSError, TypeError, ValueError):
        return without


def running(job_dir: Path, job_id: str) -> list[int]:
    """Return the processes of a job on this node."""
    return process_table.of_job(*_identity(job_dir, job_id))


def all_alive(folders: Sequence[Path]) -> list[Path]:
    """Return those of these folders of jobs whose monitor runs on this node."""
    found = as_user.in_each(folders, process_table.monitor_alive)
    return [folder for folder in folders if found.get(folder)]


def all_with_end(folders: Sequence[Path]) -> list[Path]:
    """Return those of these folders of jobs in which the head recorded the end of the job."""
    found = as_user.in_each(folders, job_folder.has_end)
    return [folder for folder in folders if found.get(folder)]


def _owner(user: str) -> Owner:
    """Return the user of the job."""
    owner = as_user.named(user)
    if os.geteuid() not in (0, owner.uid):
        me = pwd.getpwuid(os.geteuid()).pw_name
        raise JobError(f"{me} cannot run a job as {user}: expected trainyard_become: true, or trainyard_user: {me}")
    return owner


def start(
    job_dir: Path,
    node_plan: NodePlan,
    archive: bytes,
    user: str,
    secret_files: Mapping[str, bytes],
    again: bool = False,
) -> None:
    """Start a job's processes on this node. Raises JobError, and leaves nothing behind, where that is not possible.

    Raises TakenError where a folder or a process of this id exists: the name of a unit holds only the id. A scheduler
    may start the job `again` in the same folder, of which the source and the logs stay.
    """
    owner, job_id = _owner(user), node_plan["job_id"]
    unit = unit_of(job_id)
    busy = process_table.of_job(job_id, unit, owner.uid)
    again = again and not busy and job_dir.is_dir()
    if again:
        as_user.in_folder(job_dir, None, job_folder.begin_again)
    if busy or not (again or job_folder.make(job_dir, owner)):
        raise TakenError(
            f"{job_dir} is another launch's, or its processes run here: expected a new job id; launch again"
        )
    node_plan = {**node_plan, "unit": unit, "base_env": job_folder.base_environment(user)}
    output = ""
    try:
        as_user.run(owner, job_folder.fill, job_dir, node_plan, archive, packed(), secret_files)
        complaint = (_start_unit if unit else _start_monitor)(job_dir, node_plan, user, owner)
        if complaint and unit:
            output = units.journal(job_id)
        complaint = complaint or _shared_devices(job_dir, node_plan)
    except (JobError, OSError, tarfile.TarError, subprocess.SubprocessError) as error:
        complaint = as_user.error_text(error)
    if complaint:
        stop(job_dir, job_id) if again else remove(job_dir, job_id)
        raise JobError(f"{complaint}{': ' + output if output else ''}")


def _shared_devices(job_dir: Path, node_plan: NodePlan) -> str:
    """Return that another job has devices of this one, which now runs; "" where none has.

    Preflight finds jobs that ran then. If two have started since, the later one finds the other here, or both do.
    """
    devices = set(node_plan["devices"])
    if not devices or node_plan.get("busy_devices") == busy_devices.SHARE:
        return ""
    others = [folder for folder in folders.of_jobs(folders.jobs_of(job_dir)) if folder != job_dir]
    for folder, held in as_user.in_each(others, folders.held_devices).items():
        if shared := sorted(devices.intersection(held)):
            used = f"job {folders.id_of(folder)} has started on device {', '.join(map(str, shared))} at the same time"
            return f"{used}: expected devices that nobody else uses; launch again with job_busy_devices: wait"
    return ""


def _start_unit(job_dir: Path, node_plan: NodePlan, user: str, owner: Owner) -> str:
    job_id, grace_s = node_plan["job_id"], stop_grace.of_plan(node_plan)[1]
    limits = units.Limits(node_plan["timeout_s"] + grace_s + 60, grace_s, bool(node_plan.get("max_restarts")))
    complaint = units.start(job_id, user, sys.executable, job_dir, limits, bool(node_plan.get("container")))
    return complaint or _await_monitor(job_dir, owner, lambda: not units.active(job_id))


def _start_monitor(job_dir: Path, node_plan: NodePlan, user: str, owner: Owner) -> str:
    identity: dict[str, Any] = {}
    if os.geteuid() == 0 and user != "root":
        identity = {"user": owner.uid, "group": owner.gid, "extra_groups": owner.groups}
    # Output of the monitor before it has its log; the file belongs to root and has no name.
    with tempfile.TemporaryFile() as printed:
        monitor = subprocess.Popen(
            [sys.executable, "-IS", str(job_dir / "trainyard.pyz"), "monitor", str(job_dir)],
            env={"TRAINYARD_JOB_ID": node_plan["job_id"]},
            cwd="/",
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=printed,
            **identity,
        )
        complaint = _await_monitor(job_dir, owner, lambda: monitor.poll() is not None)
        if complaint.endswith(SILENT):
            printed.seek(max(0, printed.seek(0, os.SEEK_END) - 500))
            output = printed.read(500).decode(errors="replace").strip()
            return complaint.replace(SILENT, output) if output else complaint
    return complaint


def _await_monitor(job_dir: Path, owner: Owner, ended: Callable[[], bool]) -> str:
    """Wait until the monitor has written its first state; return why it has not, or ""."""
    deadline = time.monotonic() + COME_UP_S
    while time.monotonic() < deadline:
        if as_user.run(owner, job_folder.reported, job_dir, _POLL_S):
            return ""
        # Asking systemd costs more than reading a file.
        if ended() and not as_user.run(owner, job_folder.reported, job_dir, 0.0):
            output = as_user.run(owner, job_folder.monitor_output, job_dir)
            return f"the monitor ended before it reported: {output or SILENT}"
    return f"the monitor did not come up within {COME_UP_S:.0f} s"


def stop(job_dir: Path, job_id: str, removing: bool = False, grace_s: float = 0.0) -> bool:
    """End a job's processes on this node; return whether any ran. Raises JobError where a process stays.

    Its ranks may take `grace_s` to save: their monitor asks them to end, and ends when they have. Before the folder is
    removed (`removing`), systemd must have finished its work in it.
    """
    found = running(job_dir, job_id)
    identity = _identity(job_dir, job_id)
    wait_s, complaint = grace_s + units.MONITOR_LEAVES_S, ""
    _in_folder(job_dir, None, job_folder.end_monitor, wait_s, limit_s=wait_s + as_user.LIMIT_S)
    if has_systemd():
        if _in_folder(job_dir, False, process_table.monitor_alive):
            units.kill(job_id)
        complaint = units.stop(job_id, lambda: not removing and not running(job_dir, job_id))
    left = process_table.end(*identity) if process_table.left_of_job(*identity) else []
    if left:
        named = "; ".join(f"{pid} {process_table.command_line(pid)}" for pid in left)
        raise JobError(f"processes of {job_id} do not end: {named}. {complaint}".strip())
    _in_folder(job_dir, 0, container.remove_all)
    if not removing:
        _in_folder(job_dir, None, forget_secrets)
    return bool(found)


def forget_what_is_over(job_dir: Path, job_id: str) -> None:
    """Remove the secrets of a job whose monitor ended without doing so: killed, lost with its node, out of disk.

    A job whose unit lies in systemd's folder keeps them: its monitor comes back.
    """
    if not (has_systemd() and units.come_back(job_id)):
        _in_folder(job_dir, None, job_folder.forget_what_is_over)


def remove(job_dir: Path, job_id: str) -> bool:
    """End a job on this node and remove its folder; return whether there was anything."""
    changed = stop(job_dir, job_id, removing=True)
    return folder_removal.remove(job_dir) or changed


def status(job_dir: Path, job_id: str) -> dict[str, Any]:
    """Return the state of the job on this node, and on the head of the whole job."""
    nothing = {"known": False, "monitor_alive": False, "processes": [], "monitor": None, "cluster": None}
    found: dict[str, Any] = as_user.in_folder(job_dir, None, job_folder.status) or nothing
    monitor = found["monitor"]
    if monitor and not monitor["end"] and not found["monitor_alive"]:
        found["monitor_lost"] = _lost(job_id, monitor["started"])
    # By its id, as the job may have renamed its folder.
    return {**found, "left": len(running(job_dir, job_id))}


def not_ended(user: str, age_s: float) -> dict[str, Any]:
    """Return `count`, `user` and `processes`: what the job's user started during the job and belongs to no job.

    Without root there are none, nor for a job that runs as root: they could be anything that this user does.
    `shared_memory` is what that user has left there, see strays.shared_files.
    """
    uid = as_user.named(user).uid
    found = strays.began(uid, age_s) if uid and not os.geteuid() else []
    named = [f"{pid} {process_table.command_line(pid)}" for pid in found[: strays.MAX_NAMED]]
    answer = {"count": len(found), "user": user, "processes": named}
    files = strays.shared_files(uid, age_s) if uid else {}
    if not files:
        return answer
    shared = {"count": len(files), "size_mib": sum(files.values()) >> 20, "names": [*files][: strays.MAX_NAMED]}
    return {**answer, "shared_memory": shared}


def _lost(job_id: str, started: float) -> dict[str, Any]:
    """Return how a monitor that started at `started` ended without noting it, or that its node restarted."""
    restarted = process_table.began(1) > started
    ended = units.journal_exit(units.journal(job_id)) if has_systemd() and not restarted else None
    return {"restarted": restarted, "how": exit_text(ended) if ended else ""}


def take_stacks(job_dir: Path, looks: int) -> dict[str, Any]:
    """Return the stacks of a job's ranks on this node, see stacks.take; nothing without a job here."""
    limit_s = looks * 2 + as_user.LIMIT_S
    return as_user.in_folder(job_dir, None, job_folder.take_stacks, looks, limit_s=limit_s) or {"ranks": [], "text": ""}


def wait(job_dir: Path, seconds: float) -> None:
    """Return when the job's monitor on this node has ended, or after `seconds`."""
    as_user.in_folder(job_dir, None, job_folder.wait, seconds, limit_s=seconds + as_user.LIMIT_S)


def list_folders(jobs: Path, of_schedulers: Iterable[Path] = ()) -> list[dict[str, Any]]:
    """Return the folders of all jobs of this node that we may read: id, age in s since the last report, size in MiB.

    A job's id is its folder's name. `of_schedulers` are patterns of a scheduler's jobs, whose hosts may share a folder.
    """
    places = [place for folder in of_schedulers for place in Path("/").glob(str(folder)[1:])]
    theirs = [folder for folder in places if job_ids.is_valid(folders.id_of(folder))]
    ours = folders.of_jobs(jobs)
    found = {**as_user.in_each(theirs, folders.record_of_scheduler), **as_user.in_each(ours, folders.record)}
    damaged = {
        folder: {"written": folder.lstat().st_mtime, "size": 0, "alive": True}
        for folder in ours
        if folder not in found and running(folder, folders.id_of(folder))
    }
    known_ids = {folders.id_of(folder) for folder in (*found, *damaged)}
    for job_id in process_table.in_units() - known_ids if has_systemd() else ():
        # A job that has renamed its folder, or has it below another trainyard_state.
        damaged[jobs / job_id] = {"written": time.time(), "size": 0, "alive": True}
    return [
        {
            "job_id": folders.id_of(folder),
            "job_dir": str(folder),
            "age_s": max(0.0, time.time() - as_time(known["written"])),
            "running": known["alive"] or bool(running(folder, folders.id_of(folder))),
            "size_mib": known["size"] >> 20,
        }
        for folder, known in {**found, **damaged}.items()
    ]
