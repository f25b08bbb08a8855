# SPDX-License-Identifier: Apache-2.0
"""A job on this node: start it, end it, tell how it is. One interface over systemd units and the fallback.

What stands in the job's folder is read and written as the job's user (job_folder.py). What ends whom is decided from
the machine: units, cgroups and processes.
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

from ....trainyard.job.run.failure import exit_text
from ...machine import as_user
from ...machine.as_user import JobError, Owner
from ..record.secrets import forget_secrets
from . import folder as job_folder
from . import folders, processes, strays, units
from .runtime import pack

Spec = dict[str, Any]
# How long a monitor may take to start on a node that is busy.
COME_UP_S = 60.0
SILENT = "it said nothing"
_LOOK_S = 0.5


class TakenError(JobError):
    """Another launch has this job's id here: nothing was touched."""


def supervision() -> str:
    """Tell who supervises: `systemd` where it is PID 1 and we may make system units, else `children`."""
    return "systemd" if units.SYSTEMD_RUNNING.is_dir() and os.geteuid() == 0 else "children"


def _whose(job_dir: Path, job_id: str) -> tuple[str, str, int | None]:
    """Return by what a job's processes are known: its id, slice and user. Raises JobError for what is no job's id."""
    if not job_folder.is_job_id(job_id):
        raise JobError(f"job_id {job_id!r}: expected small letters, digits and hyphens")
    owner = as_user.owner_of(job_dir)
    return job_id, _slice(job_id), owner.uid if owner else None


def _slice(job_id: str) -> str:
    return units.slice_name(job_id) if supervision() == "systemd" else ""


def _in_folder(job_dir: Path, without: Any, function: Callable[..., Any], *arguments: Any, **limits: float) -> Any:
    """Return what a function of the job's folder returns; `without` where there is none, or its user has spoiled it.

    What runs is known from units, cgroups and processes: nothing that stands in the folder may stop whoever ends it.
    """
    try:
        return as_user.in_folder(job_dir, without, function, *arguments, **limits)
    except (JobError, ArithmeticError, AttributeError, LookupError, OSError, TypeError, ValueError):
        return without


def running(job_dir: Path, job_id: str) -> list[int]:
    """Return the processes of a job on this node."""
    return processes.of_job(*_whose(job_dir, job_id))


def alive(job_dir: Path) -> bool:
    """Tell whether the job's monitor runs on this node."""
    return bool(as_user.in_folder(job_dir, False, processes.monitor_alive))


def all_alive(folders: Sequence[Path]) -> list[Path]:
    """Return those of these folders of jobs whose monitor runs on this node."""
    found = as_user.in_each(folders, processes.monitor_alive)
    return [folder for folder in folders if found.get(folder)]


def _owner(user: str) -> Owner:
    """Return whom the job runs as."""
    owner = as_user.named(user)
    if os.geteuid() not in (0, owner.uid):
        me = pwd.getpwuid(os.geteuid()).pw_name
        raise JobError(f"{me} cannot run a job as {user}: expected trainyard_become: true, or trainyard_user: {me}")
    return owner


def start(job_dir: Path, spec: Spec, archive: bytes, user: str, secret_files: Mapping[str, bytes]) -> None:
    """Start this node's part of a job. Raises JobError, and leaves nothing behind, when that is not possible.

    Raises TakenError where there is a folder or a process of this id: units know a job by its id alone.
    """
    owner = _owner(user)
    if processes.of_job(spec["job_id"], _slice(spec["job_id"]), owner.uid) or not job_folder.make(job_dir, owner):
        raise TakenError(
            f"{job_dir} is another launch's, or its processes run here: expected a new job id; launch again"
        )
    told = {"supervision": supervision(), "base_env": job_folder.base_environment(user)}
    why = ""
    try:
        as_user.run(owner, job_folder.fill, job_dir, spec, archive, pack(), secret_files, told)
        launch = _start_units if supervision() == "systemd" else _start_monitor
        complaint = launch(job_dir, spec, user, owner)
        if complaint and supervision() == "systemd":
            why = units.journal(spec["job_id"], "monitor")
    except (JobError, OSError, tarfile.TarError, subprocess.SubprocessError) as error:
        complaint = as_user.said(error)
    if complaint:
        remove(job_dir, spec["job_id"])
        raise JobError(f"{complaint}{': ' + why if why else ''}")


def _start_units(job_dir: Path, spec: Spec, user: str, owner: Owner) -> str:
    launch = units.start_lasting if spec.get("max_restarts") else units.start
    names = [process["name"] for process in spec["processes"]]
    complaint = launch(spec["job_id"], job_dir, user, sys.executable, names, spec["timeout_s"])
    return complaint or _await_monitor(job_dir, owner, lambda: not units.active(spec["job_id"], "monitor"))


def _start_monitor(job_dir: Path, spec: Spec, user: str, owner: Owner) -> str:
    identity: dict[str, Any] = {}
    if os.geteuid() == 0 and user != "root":
        identity = {"user": owner.uid, "group": owner.gid, "extra_groups": owner.groups}
    # Of root, and without a name: what the monitor prints before it has its log.
    with tempfile.TemporaryFile() as printed:
        monitor = subprocess.Popen(
            [sys.executable, "-IS", str(job_dir / "trainyard.pyz"), "monitor", str(job_dir)],
            env={"TRAINYARD_JOB_ID": spec["job_id"]},
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
            said = printed.read(500).decode(errors="replace").strip()
            return complaint.replace(SILENT, said) if said else complaint
    return complaint


def _await_monitor(job_dir: Path, owner: Owner, gone: Callable[[], bool]) -> str:
    """Wait until the monitor has reported for the first time: before that nobody could tell it from one that died."""
    deadline = time.monotonic() + COME_UP_S
    while time.monotonic() < deadline:
        if as_user.run(owner, job_folder.reported, job_dir, _LOOK_S):
            return ""
        # To ask systemd costs more than to look for a file.
        if gone() and not as_user.run(owner, job_folder.reported, job_dir, 0.0):
            said = as_user.run(owner, job_folder.monitor_said, job_dir)
            return f"the monitor ended before it reported: {said or SILENT}"
    return f"the monitor did not come up within {COME_UP_S:.0f} s"


def stop(job_dir: Path, job_id: str, to_remove: bool = False) -> bool:
    """End this node's part of a job; return whether anything ran. Raises JobError when a process stays.

    Where the folder is `to_remove`, systemd must have done all that it has to do in it.
    """
    found = running(job_dir, job_id)
    complaint = ""
    if supervision() == "systemd":
        # First of all: systemd stops its unit last, and it would take ranks that are killed for ranks that failed.
        _in_folder(job_dir, None, job_folder.end_monitor, 0.0)

        def over() -> bool:
            ended = not to_remove and _in_folder(job_dir, True, job_folder.all_ended)
            return ended and not running(job_dir, job_id)

        complaint = units.stop(job_id, over)
    _in_folder(job_dir, None, job_folder.end_monitor, units.STOP_TIMEOUT_S + 3)
    whose = _whose(job_dir, job_id)
    left = processes.end(*whose) if processes.left_of_job(*whose) else []
    if left:
        named = "; ".join(f"{pid} {processes.command_line(pid)}" for pid in left)
        raise JobError(f"processes of {job_id} do not end: {named}. {complaint}".strip())
    if not to_remove:
        _in_folder(job_dir, None, forget_secrets)
    return bool(found)


def forget_what_is_over(job_dir: Path, job_id: str) -> None:
    """Remove the secrets of a job whose monitor has gone without doing so: killed, lost with its node, out of disk.

    Not of one whose monitor is yet to come, or to come back: then its units stand in systemd's folder.
    """
    if not (supervision() == "systemd" and units.come_back(job_id)):
        _in_folder(job_dir, None, job_folder.forget_what_is_over)


def remove(job_dir: Path, job_id: str) -> bool:
    """End this node's part of a job and remove its folder. Returns whether there was anything."""
    changed = stop(job_dir, job_id, to_remove=True)
    return job_folder.remove(job_dir) or changed


def status(job_dir: Path, job_id: str) -> dict[str, Any]:
    """Tell how this node's part of the job is, and on the head how the whole job is."""
    nothing: dict[str, Any] = {
        "known": False,
        "monitor_alive": False,
        "processes": [],
        "monitor": None,
        "cluster": None,
    }
    found: dict[str, Any] = as_user.in_folder(job_dir, None, job_folder.status) or nothing
    monitor = found["monitor"]
    if monitor and not monitor["end"] and not found["monitor_alive"]:
        found["monitor_lost"] = _lost(job_id, monitor["started"])
    # Wherever its folder is: the job may have renamed it.
    return {**found, "left": len(running(job_dir, job_id))}


def not_ended(job_dir: Path, job_id: str, user: str, age_s: float) -> dict[str, Any]:
    """Name what the job's user began during the job and no job has: `count`, `user`, and some `processes`.

    Where that user works here without root, nobody could tell them from what he does himself: none then.
    """
    found: list[int] = []
    if not os.geteuid():
        uid = as_user.named(user).uid
        others = [job_id, *(folder.name for folder in all_alive(list(folders.of_jobs(job_dir.parent))))]
        known = {pid for each in others for pid in processes.of_job(each, _slice(each), uid)}
        found = strays.began(uid, age_s, known)
    named = [f"{pid} {processes.command_line(pid)}" for pid in found[: strays.MOST]]
    return {"count": len(found), "user": user, "processes": named}


def _lost(job_id: str, started: float) -> dict[str, Any]:
    """Tell what became of a monitor that began at `started` and noted no end: its node restarted, or how it ended."""
    restarted = processes.node_started() > started
    by_units = not restarted and supervision() == "systemd"
    ended = units.journal_exit(units.journal(job_id, "monitor")) if by_units else None
    return {"restarted": restarted, "how": exit_text(ended) if ended else ""}


def take_stacks(job_dir: Path, job_id: str, looks: int) -> dict[str, Any]:
    """Return where this node's ranks of a job are, see stacks.take; the job goes on. Without a job here, nothing."""
    _, slice_name, _ = _whose(job_dir, job_id)
    found: dict[str, Any] | None = as_user.in_folder(
        job_dir, None, job_folder.take_stacks, slice_name, looks, limit_s=looks * 2 + as_user.LIMIT_S
    )
    return found or {"ranks": [], "text": ""}


def wait(job_dir: Path, seconds: float) -> None:
    """Return when the job's monitor on this node has ended, or after `seconds`."""
    as_user.in_folder(job_dir, None, job_folder.wait, seconds, limit_s=seconds + as_user.LIMIT_S)


def follow(job_dir: Path, offsets: Mapping[str, int | None]) -> dict[str, Spec]:
    """Return what was added to logs of this node since it was read so far (job_folder.follow)."""
    lines: dict[str, Spec] = as_user.in_folder(job_dir, {}, job_folder.follow, offsets)
    return lines


def read_logs(job_dir: Path, limit: int) -> dict[str, str]:
    """Return the logs of this node and the metrics, base64, each cut to its last `limit` bytes."""
    logs: dict[str, str] = as_user.in_folder(job_dir, {}, job_folder.read_logs, limit)
    return logs


def list_folders(jobs: Path, of_schedulers: Iterable[Path] = ()) -> list[dict[str, Any]]:
    """Return the folders of all jobs of this node that we may read: id, age in s since the last report, size in MiB.

    A job's id is its folder's name. `of_schedulers` are folders that jobs of a scheduler may have here, without our
    monitor's files.
    """
    theirs = [folder for folder in of_schedulers if job_folder.is_job_id(folder.name)]
    ours = list(folders.of_jobs(jobs))
    found = {**as_user.in_each(theirs, folders.record_of_scheduler), **as_user.in_each(ours, folders.record)}
    spoiled = {
        folder: {"written": folder.lstat().st_mtime, "size": 0, "alive": True}
        for folder in ours
        if folder not in found and running(folder, folder.name)
    }
    known_ids = {folder.name for folder in (*found, *spoiled)}
    for job_id in processes.in_slices() - known_ids if supervision() == "systemd" else ():
        # A job that has renamed its folder, or has it below another trainyard_state.
        spoiled[jobs / job_id] = {"written": time.time(), "size": 0, "alive": True}
    return [
        {
            "job_id": folder.name,
            "job_dir": str(folder),
            "age_s": max(0.0, time.time() - known["written"]),
            "running": known["alive"] or bool(running(folder, folder.name)),
            "size_mib": known["size"] >> 20,
        }
        for folder, known in {**found, **spoiled}.items()
    ]
