# SPDX-License-Identifier: Apache-2.0
"""Processes of a job on this node, found by the job id that each of them carries.

A process belongs to a job when its cgroup is in the job's slice or TRAINYARD_JOB_ID in its first environment is the
job's id (proc(5): /proc/PID/environ, /proc/PID/cgroup, /proc/PID/stat). A process id alone is never trusted: it is
used again, so it goes with its start time.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from .exits import read_json

PROC = Path("/proc")


def start_time(pid: int, proc: Path = PROC) -> int | None:
    """Return the start time of a process in clock ticks since boot; None when it is gone or a zombie."""
    try:
        stat = (proc / str(pid) / "stat").read_bytes()
    except OSError:
        return None
    # The second field is the command in parentheses, which may itself hold spaces, parentheses and half a character.
    fields = stat.rpartition(b")")[2].split()
    return None if not fields or fields[0] in (b"Z", b"X") else int(fields[19])


def monitor_alive(job_dir: Path) -> bool:
    """Tell whether the monitor of the job with this folder runs on this node."""
    monitor = read_json(job_dir / "monitor.json")
    return bool(monitor) and start_time(monitor["pid"]) == monitor["start_time"]


def _environ(entry: Path) -> bytes:
    """Read the first environment of a process; b"" where that is not allowed, or the process is gone.

    Root without CAP_SYS_PTRACE, as in most containers, may not read that of another user: then it is read as its owner
    (ptrace(2), "Ptrace access mode checking").
    """
    path = entry / "environ"
    try:
        return path.read_bytes()
    except PermissionError:
        if os.geteuid():
            return b""
    except OSError:
        return b""
    group = os.getegid()
    try:
        owner = entry.stat()
        os.setegid(owner.st_gid)
        os.seteuid(owner.st_uid)
        return path.read_bytes()
    except OSError:
        return b""
    finally:
        os.seteuid(0)
        os.setegid(group)


def of_job(job_id: str, slice_name: str = "", proc: Path = PROC) -> list[int]:
    """Return the process ids of a job, without zombies and without the caller."""
    mark = b"TRAINYARD_JOB_ID=" + job_id.encode()
    found = []
    for entry in proc.iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        mine = mark in _environ(entry).split(b"\0")
        if not mine and slice_name:
            try:
                groups = (entry / "cgroup").read_bytes().splitlines()
            except OSError:
                continue
            mine = any(f"/{slice_name}/".encode() in group + b"/" for group in groups)
        if mine and start_time(int(entry.name), proc) is not None:
            found.append(int(entry.name))
    return sorted(found)


def ranks_of_job(job_id: str, job_dir: Path, proc: Path = PROC) -> list[int]:
    """Return the process ids of a job but those of our own runtime, which supervise or wait for their turn."""
    runtime, found = os.fsencode(job_dir / "trainyard.pyz"), []
    for pid in of_job(job_id, proc=proc):
        try:
            argv = (proc / str(pid) / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        # `rank` is about to become one.
        if runtime not in argv or argv[argv.index(runtime) + 1] == b"rank":
            found.append(pid)
    return found


def command_line(pid: int, proc: Path = PROC) -> str:
    """Return what a process was started with, shortened for a message."""
    try:
        return (proc / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()[:120]
    except OSError:
        return "(gone)"


def end(job_id: str, slice_name: str = "", grace_s: float = 5.0) -> list[int]:
    """End all processes of a job, politely first. Returns those that are still there afterwards."""
    deadline = time.monotonic() + grace_s
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in of_job(job_id, slice_name):
            try:
                os.kill(pid, number)
            except (ProcessLookupError, PermissionError):
                continue
        while of_job(job_id, slice_name) and time.monotonic() < deadline:
            time.sleep(0.1)
        deadline = time.monotonic() + 2.0
    return of_job(job_id, slice_name)
