# SPDX-License-Identifier: Apache-2.0
"""Processes of a job on this node, found by the job id that each of them carries.

A process belongs to a job when its cgroup is that of the job's unit, TRAINYARD_JOB_ID in its first environment is the
job's id, or a process of the job has started it (proc(5): /proc/PID/environ, /proc/PID/cgroup, /proc/PID/stat). It may
overwrite its environment, as setproctitle does. The monitor becomes the parent of orphans (`adopt`). A process id alone
is never trusted, as ids are reused: the start time goes with it.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time

from ....machine.json_files import read_object

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

    from ....machine.json_files import AnyPath

PROC = "/proc"
# Upper bound for a command line in a message, in characters.
SHOWN = 120
# In the environment of the tools that a monitor itself runs, such as nvidia-smi (restart_check.py).
OWN_TOOL = "TRAINYARD_OWN_TOOL"
_PR_SET_CHILD_SUBREAPER = 36
# Signal for a monitor whose node goes down and leaves the job, which goes on; SIGTERM stops the job.
GOES_DOWN = signal.SIGPWR
# How long execve(2) may take on a busy machine, in seconds.
EXEC_S = 0.1
# The unit of a job in /proc/PID/cgroup, but not below user.slice, where any user may make a unit of this name.
_UNIT = re.compile(
    rb"^[^/\n]*(?:/(?!user\.slice/)[^/\n]+)*?/trainyard\.slice/trainyard-([a-z0-9-]+)\.service(?:/|$)", re.MULTILINE
)
# All processes of a job carry its id, or the one that Slurm gave it.
_MARK = re.compile(rb"(?:^|\0)(?:TRAINYARD_JOB_ID|SLURM_JOB_ID)=[^\0]")
_ID = re.compile(rb"(?:^|\0)TRAINYARD_JOB_ID=([\w.-]{1,128})(?:\0|$)")
# In the flags of /proc/PID/stat: a thread of the kernel.
_PF_KTHREAD = 0x200000
# Upper bound of a process id on Linux (proc(5), pid_max).
_MAX_PID = 1 << 22


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def content(path: str) -> bytes:
    """Return what a file of /proc holds; b"" where the process has ended, or it is hidden from us."""
    try:
        return _read(path)
    except OSError:
        return b""


def stat_fields(pid: int, proc: AnyPath = PROC) -> list[bytes]:
    """Return the fields of /proc/PID/stat from the state on; nothing for a zombie, or where the process has ended."""
    # The second field is the command in parentheses, which may itself hold spaces, parentheses and half a character.
    fields = content(f"{proc}/{pid}/stat").rpartition(b")")[2].split()
    return [] if not fields or fields[0] in (b"Z", b"X") else fields


def _stat(pid: int, proc: AnyPath) -> tuple[int, int] | None:
    """Return the parent and the start time of a process; None for a zombie, or where it has ended."""
    fields = stat_fields(pid, proc)
    return (int(fields[1]), int(fields[19])) if fields else None


def start_time(pid: int, proc: AnyPath = PROC) -> int | None:
    """Return the start time of a process in clock ticks since boot; None for a zombie, or where it has ended."""
    stat = _stat(pid, proc)
    return stat[1] if stat else None


def began(pid: int, proc: AnyPath = PROC) -> float:
    """Return when a process began, in s since the epoch: process 1 when its node or container started."""
    ticks = start_time(pid, proc) or 0
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")


def open_end(pid: int, started: int) -> int | None:
    """Return a descriptor that becomes readable when this process ends; None where it has ended.

    None, too, before Linux 5.3 and in a container whose seccomp profile does not know pidfd_open(2).
    """
    with contextlib.suppress(AttributeError, OSError):
        descriptor = os.pidfd_open(pid)
        if start_time(pid) == started:
            return descriptor
        os.close(descriptor)
    return None


def monitor_of(job_dir: AnyPath) -> tuple[int, int] | None:
    """Return the process id and start time of a job's monitor on this node; None where none runs.

    Any process of the job's user may overwrite the file.
    """
    noted = read_object(f"{job_dir}/monitor.json")
    pid, started = noted.get("pid"), noted.get("start_time")
    if type(pid) is int and 0 < pid <= _MAX_PID and type(started) is int and start_time(pid) == started:
        return pid, started
    return None


def monitor_alive(job_dir: AnyPath) -> bool:
    """Return whether the monitor of the job with this folder runs on this node."""
    return monitor_of(job_dir) is not None


def _environ(entry: str) -> bytes:
    """Read the first environment of a process; b"" where that is not allowed, or the process has ended.

    Root without CAP_SYS_PTRACE, as in most containers, may not read the one of another user: then it is read as its
    owner (ptrace(2), "Ptrace access mode checking").
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
    """Return the parent of a process; 0 where it has none, or has ended."""
    stat = _stat(pid, proc)
    return stat[0] if stat else 0


def started_by(pid: int, started: Container[int], proc: AnyPath = PROC) -> int | None:
    """Return the nearest of the `started` processes that is this one or an ancestor of it; None where none is."""
    while pid > 1 and pid not in started:
        pid = parent(pid, proc)
    return pid if pid in started else None


def pids(proc: AnyPath = PROC) -> list[int]:
    """Return the ids of all processes."""
    return [int(name) for name in os.listdir(proc) if name.isdigit()]


def name(pid: int, proc: AnyPath = PROC) -> str:
    """Return the name of a process, which the kernel cuts after 15 bytes; "" where it has ended."""
    return content(f"{proc}/{pid}/comm").decode("utf-8", "replace").strip()


def state(pid: int | str, proc: AnyPath = PROC) -> str:
    """Return the state of a process, or of a thread `PID/task/TID`; "" where it has ended."""
    fields = content(f"{proc}/{pid}/stat").rpartition(b")")[2].split()
    return fields[0].decode("ascii", "replace") if fields else ""


def open_files(pid: int, proc: AnyPath = PROC) -> list[str]:
    """Return the links of /proc/PID/fd. Raises OSError where they are hidden from us, or the process has ended."""
    links = []
    for number in os.listdir(f"{proc}/{pid}/fd"):
        # It may be closed by now.
        with contextlib.suppress(OSError):
            links.append(os.readlink(f"{proc}/{pid}/fd/{number}"))
    return links


def files_in_use(pid: int, below: str) -> set[str]:
    """Return the files below a folder that a process has open or mapped."""
    found: set[str] = set()
    with contextlib.suppress(OSError):
        found.update(open_files(pid))
    for line in content(f"{PROC}/{pid}/maps").decode("utf-8", "replace").splitlines():
        found.update(line.split(maxsplit=5)[5:])
    return {path for path in found if path.startswith(below)}


def command_of_runtime(pid: int, job_dir: AnyPath, proc: AnyPath = PROC) -> str:
    """Return the command of our runtime that a process runs, such as `agent`; "" where it runs another program."""
    argv = arguments(pid, proc)
    runtime = f"{job_dir}/trainyard.pyz"
    return argv[argv.index(runtime) + 1] if runtime in argv[:-1] else ""


def user(pid: int, proc: AnyPath = PROC) -> int | None:
    """Return the real user of a process by its status: the folder of some processes of users belongs to root."""
    lines = content(f"{proc}/{pid}/status").splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith(b"Uid:")), None)


def of_job(job_id: str, unit: str = "", uid: int | None = None, proc: AnyPath = PROC) -> list[int]:
    """Return the process ids of a job, without zombies and without the caller.

    With `uid`, the job's id counts only in the environments of this user's processes.
    """
    return sorted(_members(job_id, unit, uid, proc))


def _alive(proc: AnyPath) -> dict[int, tuple[int, int]]:
    """Return parents and start times of all processes by process id, without the kernel's own: a node has thousands."""
    stats = {pid: stat_fields(pid, proc) for pid in pids(proc)}
    return {
        pid: (int(fields[1]), int(fields[19]))
        for pid, fields in stats.items()
        if fields and not int(fields[6]) & _PF_KTHREAD
    }


def _below(alive: Mapping[int, tuple[int, int]]) -> dict[int, list[int]]:
    """Return the children of processes by their parent's id."""
    found: dict[int, list[int]] = {}
    for pid, (above, _) in alive.items():
        found.setdefault(above, []).append(pid)
    return found


def children(proc: AnyPath = PROC) -> dict[int, list[int]]:
    """Return the children of all processes by their parent's id."""
    return _below(_alive(proc))


def handles(pid: int, number: int, proc: AnyPath = PROC) -> bool:
    """Return whether a process has a handler for a signal (proc(5), SigCgt)."""
    lines = content(f"{proc}/{pid}/status").splitlines()
    mask = next((line.split()[1] for line in lines if line.startswith(b"SigCgt:")), b"0")
    return bool(int(mask, 16) >> (number - 1) & 1)


def of_user(uid: int, proc: AnyPath = PROC) -> dict[int, tuple[int, int]]:
    """Return parents and start times of a user's processes by process id."""
    return {pid: stat for pid, stat in _alive(proc).items() if user(pid, proc) == uid}


def in_units(proc: AnyPath = PROC) -> set[str]:
    """Return the ids of all jobs whose units have processes."""
    return {name.decode() for pid in pids(proc) for name in _UNIT.findall(content(f"{proc}/{pid}/cgroup"))}


def _members(job_id: str, unit: str, uid: int | None, proc: AnyPath) -> dict[int, int]:
    """Return the start times of a job's processes by process id."""
    mark = b"TRAINYARD_JOB_ID=" + job_id.encode()
    alive = _alive(proc)

    def marked(pid: int) -> bool:
        entry = f"{proc}/{pid}"
        mine = mark in _environ(entry).split(b"\0") and uid in (None, user(pid, proc))
        return mine or bool(unit and _in_unit(entry, unit))

    below = _below(alive)
    found, queue = set(), [pid for pid in alive if marked(pid)]
    while queue:
        pid = queue.pop()
        if pid not in found:
            found.add(pid)
            queue += below.get(pid, ())
    return {pid: alive[pid][1] for pid in found if pid != os.getpid()}


def job_of(pid: int, proc: AnyPath = PROC) -> str:
    """Return the id of the job of a process by its environment or its unit; "" without one, or where it is hidden."""
    found = _ID.search(_environ(f"{proc}/{pid}"))
    if found:
        return found[1].decode()
    found = _UNIT.search(content(f"{proc}/{pid}/cgroup"))
    return found[1].decode() if found else ""


def of_any_job(proc: AnyPath = PROC) -> set[int]:
    """Return the process ids of all jobs: what carries a job's id or is in a job's unit, with all below and above it.

    sshd and a shell, which carry no id, start mpirun's daemon.
    """
    alive = _alive(proc)
    below, found, above = _below(alive), set[int](), set[int]()
    queue = [
        pid for pid in alive if _MARK.search(_environ(f"{proc}/{pid}")) or _UNIT.search(content(f"{proc}/{pid}/cgroup"))
    ]
    for pid in queue:
        while pid in alive and pid not in above:
            above.add(pid)
            pid = alive[pid][0]
    while queue:
        pid = queue.pop()
        if pid not in found:
            found.add(pid)
            queue += below.get(pid, ())
    return found | above


def _in_unit(entry: str, unit: str) -> bool:
    groups = content(f"{entry}/cgroup").splitlines()
    return any(f"/{unit}/".encode() in group + b"/" for group in groups)


def ranks_of_job(job_id: str, job_dir: AnyPath, unit: str = "", proc: AnyPath = PROC) -> list[int]:
    """Return the process ids of a job's ranks: not of our runtime, receivers of events, or a monitor's tools."""
    runtime, found = os.fsencode(f"{job_dir}/trainyard.pyz"), []
    for pid in of_job(job_id, unit, proc=proc):
        try:
            argv = _read(f"{proc}/{pid}/cmdline").split(b"\0")
        except OSError:
            continue
        environment = b"\0" + _environ(f"{proc}/{pid}")
        other = b"\0TRAINYARD_EVENT=" in environment or f"\0{OWN_TOOL}=".encode() in environment
        # `rank` is about to become a rank, `agent` has started some.
        if not other and (runtime not in argv or argv[argv.index(runtime) + 1] in (b"agent", b"rank")):
            found.append(pid)
    return found


def adopt() -> None:
    """Become the parent of all descendants whose own parent ends (prctl(2), PR_SET_CHILD_SUBREAPER)."""
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap_adopted(own: Container[int]) -> None:
    """Reap adopted children; others wait for the `own` ones."""
    with contextlib.suppress(ChildProcessError):
        while True:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None or ended.si_pid in own:
                return
            os.waitpid(ended.si_pid, 0)


def command_line(pid: int, proc: AnyPath = PROC) -> str:
    """Return the command line of a process, shortened for a message."""
    try:
        return _read(f"{proc}/{pid}/cmdline").replace(b"\0", b" ").decode("utf-8", "replace").strip()[:SHOWN]
    except OSError:
        return "(gone)"


def arguments(pid: int, proc: AnyPath = PROC) -> list[str]:
    """Return the arguments of a process; none where it has ended."""
    text = content(f"{proc}/{pid}/cmdline").decode("utf-8", "replace").rstrip("\0")
    return text.split("\0") if text else []


def left_of_job(job_id: str, unit: str = "", uid: int | None = None) -> list[int]:
    """Return the process ids of a job; where there are none, search once more after a moment.

    During execve(2) a process shows no environment.
    """
    found = of_job(job_id, unit, uid)
    if not found:
        time.sleep(EXEC_S)
        found = of_job(job_id, unit, uid)
    return found


def end(job_id: str, unit: str = "", uid: int | None = None, grace_s: float = 5.0) -> list[int]:
    """End all processes of a job by SIGTERM, then by SIGKILL. Returns those that are still there."""
    deadline = time.monotonic() + grace_s
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid, started in _members(job_id, unit, uid, PROC).items():
            send(pid, started, number)
            send(pid, started, signal.SIGCONT)
        while left_of_job(job_id, unit, uid) and time.monotonic() < deadline:
            time.sleep(0.1)
        deadline = time.monotonic() + 2.0
    return of_job(job_id, unit, uid)


def end_sessions(job_id: str, leaders: Container[int]) -> None:
    """Kill what the leaders of sessions, which have ended, have left of a job."""
    for pid, started in _members(job_id, "", None, PROC).items():
        # proc(5): the session is the sixth field, the fourth from the state on.
        fields = stat_fields(pid)
        if fields and int(fields[3]) in leaders:
            send(pid, started, signal.SIGKILL)


def ask_to_end(pids: Iterable[int]) -> None:
    """Send SIGTERM, then SIGCONT as systemd does: a stopped process takes no SIGTERM before it continues."""
    for pid in pids:
        for number in (signal.SIGTERM, signal.SIGCONT):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)


def stopped(pid: int, proc: AnyPath = PROC) -> bool:
    """Return whether a process is stopped, by SIGSTOP for example."""
    return state(pid, proc) == "T"


def send(pid: int, started: int, number: int) -> None:
    """Send a signal to a process, but not to another one that has its id now."""
    descriptor = open_end(pid, started)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if descriptor is not None:
            signal.pidfd_send_signal(descriptor, number)
        elif start_time(pid) == started:
            os.kill(pid, number)
    if descriptor is not None:
        os.close(descriptor)
