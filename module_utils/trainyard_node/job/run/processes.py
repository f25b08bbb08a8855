# SPDX-License-Identifier: Apache-2.0
"""Processes of a job on this node, found by the job id that each of them carries.

A process belongs to a job when its cgroup is in the job's slice, TRAINYARD_JOB_ID in its first environment is the job's
id, or a process of the job has started it (proc(5): /proc/PID/environ, /proc/PID/cgroup, /proc/PID/stat). So it stays
one when it writes over its environment, as setproctitle does, or is started without one. Where there is no slice, the
monitor is the parent of whom lost his (`adopt`). A process id alone is never trusted: it is used again, so it goes with
its start time.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time

from ...machine.json_files import read_object

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from ...machine.json_files import AnyPath

PROC = "/proc"
# Characters of a command line that are shown.
SHOWN = 120
# In the environment of what a monitor asks the machine with, such as nvidia-smi (gate_watch.py).
LOOK = "TRAINYARD_LOOK"
_PR_SET_CHILD_SUBREAPER = 36
# Seconds within which a process on a busy machine becomes another program.
_EXEC_S = 0.1
# The slice of a job in /proc/PID/cgroup. Below user.slice a user may call one so, too.
_SLICE = re.compile(
    rb"^[^/\n]*(?:/(?!user\.slice/)[^/\n]+)*?/trainyard\.slice/trainyard-([a-z0-9_]+)\.slice/", re.MULTILINE
)
# Upper bound of a process id on Linux (proc(5), pid_max).
_MOST_PID = 1 << 22


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def stat_fields(pid: int, proc: AnyPath = PROC) -> list[bytes]:
    """Return what proc(5) says of a process, from its state on; nothing when it is gone or a zombie."""
    try:
        stat = _read(f"{proc}/{pid}/stat")
    except OSError:
        return []
    # The second field is the command in parentheses, which may itself hold spaces, parentheses and half a character.
    fields = stat.rpartition(b")")[2].split()
    return [] if not fields or fields[0] in (b"Z", b"X") else fields


def _stat(pid: int, proc: AnyPath) -> tuple[int, int] | None:
    """Return the parent and the start time of a process; None when it is gone or a zombie."""
    fields = stat_fields(pid, proc)
    return (int(fields[1]), int(fields[19])) if fields else None


def start_time(pid: int, proc: AnyPath = PROC) -> int | None:
    """Return the start time of a process in clock ticks since boot; None when it is gone or a zombie."""
    stat = _stat(pid, proc)
    return stat[1] if stat else None


def node_started() -> float:
    """Return when this node started, a container when its first process did: in seconds since the epoch."""
    ticks = start_time(1) or 0
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")


def open_end(pid: int, started: int) -> int | None:
    """Return a descriptor that can be read from when this process ends; None where it has, or where nobody can tell.

    Nobody can tell before Linux 5.3, and in a container whose seccomp profile knows no pidfd_open(2).
    """
    with contextlib.suppress(AttributeError, OSError):
        descriptor = os.pidfd_open(pid)
        if start_time(pid) == started:
            return descriptor
        os.close(descriptor)
    return None


def monitor_of(job_dir: AnyPath) -> tuple[int, int] | None:
    """Return the process id and start time of a job's monitor that runs on this node; None where there is none.

    Any process of the job's user may write over the file, so whatever stands there is possible.
    """
    known = read_object(f"{job_dir}/monitor.json")
    pid, started = known.get("pid"), known.get("start_time")
    if type(pid) is int and 0 < pid <= _MOST_PID and type(started) is int and start_time(pid) == started:
        return pid, started
    return None


def monitor_alive(job_dir: AnyPath) -> bool:
    """Tell whether the monitor of the job with this folder runs on this node."""
    return monitor_of(job_dir) is not None


def _environ(entry: str) -> bytes:
    """Read the first environment of a process; b"" where that is not allowed, or the process is gone.

    Root without CAP_SYS_PTRACE, as in most containers, may not read that of another user: then it is read as its owner
    (ptrace(2), "Ptrace access mode checking").
    """
    path = f"{entry}/environ"
    try:
        return _read(path)
    except PermissionError:
        if os.geteuid():
            return b""
    except OSError:
        return b""
    group = os.getegid()
    try:
        owner = os.stat(entry)
        os.setegid(owner.st_gid)
        os.seteuid(owner.st_uid)
        return _read(path)
    except OSError:
        return b""
    finally:
        os.seteuid(0)
        os.setegid(group)


def environment(pid: int, proc: AnyPath = PROC) -> dict[str, str]:
    """Return the first environment of a process, as far as it may be read."""
    texts = [text.decode("utf-8", "replace") for text in _environ(f"{proc}/{pid}").split(b"\0")]
    return dict(text.split("=", 1) for text in texts if "=" in text)


def parent(pid: int, proc: AnyPath = PROC) -> int:
    """Return the parent of a process; 0 when it has none, or is gone."""
    stat = _stat(pid, proc)
    return stat[0] if stat else 0


def started_by(pid: int, started: Container[int], proc: AnyPath = PROC) -> int | None:
    """Return the nearest of the `started` processes that is this one or an ancestor of it; None where none is."""
    while pid > 1 and pid not in started:
        pid = parent(pid, proc)
    return pid if pid in started else None


def is_agent(pid: int, job_dir: AnyPath, proc: AnyPath = PROC) -> bool:
    """Tell whether a process is one of our runtime that starts ranks, and is none itself."""
    try:
        argv = _read(f"{proc}/{pid}/cmdline").split(b"\0")
    except OSError:
        return False
    runtime = os.fsencode(f"{job_dir}/trainyard.pyz")
    return runtime in argv and argv[argv.index(runtime) + 1] == b"agent"


def _user(entry: str) -> int | None:
    """Return the real user of a process (proc(5), /proc/PID/status): of some the folder is root's all the same."""
    try:
        lines = _read(f"{entry}/status").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith(b"Uid:")), None)


def of_job(job_id: str, slice_name: str = "", uid: int | None = None, proc: AnyPath = PROC) -> list[int]:
    """Return the process ids of a job, without zombies and without the caller.

    With the `uid` of the job's user, the job's id counts in the environments of that user's processes alone.
    """
    return sorted(_members(job_id, slice_name, uid, proc))


def _alive(proc: AnyPath) -> dict[int, tuple[int, int]]:
    """Return parents and start times of all processes by process id."""
    stats = {int(pid): _stat(int(pid), proc) for pid in os.listdir(proc) if pid.isdigit()}
    return {pid: stat for pid, stat in stats.items() if stat}


def of_user(uid: int, proc: AnyPath = PROC) -> dict[int, tuple[int, int]]:
    """Return parents and start times of a user's processes by process id."""
    return {pid: stat for pid, stat in _alive(proc).items() if _user(f"{proc}/{pid}") == uid}


def in_slices(proc: AnyPath = PROC) -> set[str]:
    """Return the ids of the jobs whose slices have processes, wherever their folders are (units.slice_name)."""
    found = set()
    for pid in filter(str.isdigit, os.listdir(proc)):
        with contextlib.suppress(OSError):
            found.update(_SLICE.findall(_read(f"{proc}/{pid}/cgroup")))
    return {name.decode().replace("_", "-") for name in found}


def _members(job_id: str, slice_name: str, uid: int | None, proc: AnyPath) -> dict[int, int]:
    """Return the start times of a job's processes by process id."""
    mark = b"TRAINYARD_JOB_ID=" + job_id.encode()
    alive = _alive(proc)

    def known(pid: int) -> bool:
        entry = f"{proc}/{pid}"
        mine = mark in _environ(entry).split(b"\0") and uid in (None, _user(entry))
        return mine or bool(slice_name and _in_slice(entry, slice_name))

    children: dict[int, list[int]] = {}
    for pid, (parent, _) in alive.items():
        children.setdefault(parent, []).append(pid)
    found, ahead = set(), [pid for pid in alive if known(pid)]
    while ahead:
        pid = ahead.pop()
        if pid not in found:
            found.add(pid)
            ahead += children.get(pid, ())
    return {pid: alive[pid][1] for pid in found if pid != os.getpid()}


def _in_slice(entry: str, slice_name: str) -> bool:
    try:
        groups = _read(f"{entry}/cgroup").splitlines()
    except OSError:
        return False
    return any(f"/{slice_name}/".encode() in group + b"/" for group in groups)


def ranks_of_job(job_id: str, job_dir: AnyPath, slice_name: str = "", proc: AnyPath = PROC) -> list[int]:
    """Return the process ids of a job but those of our own runtime, which supervise or wait for their turn.

    Nor are commands ranks of it that are told of the job (sender.py), or that its monitor asks the machine with.
    """
    runtime, found = os.fsencode(f"{job_dir}/trainyard.pyz"), []
    for pid in of_job(job_id, slice_name, proc=proc):
        try:
            argv = _read(f"{proc}/{pid}/cmdline").split(b"\0")
        except OSError:
            continue
        environment = b"\0" + _environ(f"{proc}/{pid}")
        told = b"\0TRAINYARD_EVENT=" in environment or f"\0{LOOK}=".encode() in environment
        # `rank` is about to become one, `agent` starts some.
        if not told and (runtime not in argv or argv[argv.index(runtime) + 1] in (b"agent", b"rank")):
            found.append(pid)
    return found


def adopt() -> None:
    """Become the parent of all descendants whose own parent ends (prctl(2), PR_SET_CHILD_SUBREAPER)."""
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap_adopted(own: Container[int]) -> None:
    """Take note of the end of adopted children, so that no zombies stay; `own` children have who waits for them."""
    with contextlib.suppress(ChildProcessError):
        while True:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None or ended.si_pid in own:
                return
            os.waitpid(ended.si_pid, 0)


def command_line(pid: int, proc: AnyPath = PROC) -> str:
    """Return what a process was started with, shortened for a message."""
    try:
        return _read(f"{proc}/{pid}/cmdline").replace(b"\0", b" ").decode("utf-8", "replace").strip()[:SHOWN]
    except OSError:
        return "(gone)"


def arguments(pid: int, proc: AnyPath = PROC) -> list[str]:
    """Return the words that a process was started with; none where it is gone."""
    try:
        return _read(f"{proc}/{pid}/cmdline").decode("utf-8", "replace").rstrip("\0").split("\0")
    except OSError:
        return []


def left_of_job(job_id: str, slice_name: str = "", uid: int | None = None) -> list[int]:
    """Return the process ids of a job; where there are none, look once more after a moment.

    A process that is just becoming another program (execve(2)) shows no environment until it has become that.
    """
    found = of_job(job_id, slice_name, uid)
    if not found:
        time.sleep(_EXEC_S)
        found = of_job(job_id, slice_name, uid)
    return found


def end(job_id: str, slice_name: str = "", uid: int | None = None, grace_s: float = 5.0) -> list[int]:
    """End all processes of a job, politely first. Returns those that are still there afterwards."""
    deadline = time.monotonic() + grace_s
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid, started in _members(job_id, slice_name, uid, PROC).items():
            _send(pid, started, number)
            _send(pid, started, signal.SIGCONT)
        while left_of_job(job_id, slice_name, uid) and time.monotonic() < deadline:
            time.sleep(0.1)
        deadline = time.monotonic() + 2.0
    return of_job(job_id, slice_name, uid)


def ask_to_end(pids: Iterable[int]) -> None:
    """Send SIGTERM, and SIGCONT as systemd does: what was stopped (SIGSTOP) takes no SIGTERM before it goes on."""
    for pid in pids:
        for number in (signal.SIGTERM, signal.SIGCONT):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)


def stopped(pid: int, proc: AnyPath = PROC) -> bool:
    """Tell whether a process was stopped by a signal, SIGSTOP for one."""
    with contextlib.suppress(OSError, IndexError):
        return _read(f"{proc}/{pid}/stat").rpartition(b")")[2].split()[0] == b"T"
    return False


def _send(pid: int, started: int, number: int) -> None:
    """Send a signal to a process, and to none that has got its id meanwhile."""
    descriptor = open_end(pid, started)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if descriptor is not None:
            signal.pidfd_send_signal(descriptor, number)
        elif start_time(pid) == started:
            os.kill(pid, number)
    if descriptor is not None:
        os.close(descriptor)
