# SPDX-License-Identifier: Apache-2.0
"""Find the processes that use a device of this node, and GPUs that do not answer.

Sources: open device files in /proc (proc(5), /proc/PID/fd), and contexts on NVIDIA's GPUs, which an ending process may
hold for a while after it has closed its files.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....machine.programs import english
from ....machine.tree import Tree
from ....machine.users import user_name
from ..ranks import process_table

if TYPE_CHECKING:
    from .....trainyard.hardware.device_processes import Use

NVIDIA, ASCEND = re.compile(r"/dev/nvidia(\d+)"), re.compile(r"/dev/davinci(\d+)")
# Time limit of nvidia-smi, and the pause between two checks, in seconds.
LIMIT_S, CHECK_S = 20.0, 1.0
_MAX_HOLDERS = 4
# Time limit of each tool at the failure of a rank, in seconds: other nodes wait for this monitor's report.
FAILURE_S = 5.0
# Time in which a driver gives back the memory of a process that has ended, in seconds.
FORGET_S = 5.0
# Statuses of nvidia-smi for a missing GPU, power cable, driver or interrupt, or a GPU that fell off the bus
# (nvidia-smi(1), RETURN VALUE): no attempt can start there.
_GONE = frozenset((6, 8, 9, 10, 15))
# Clock ticks per second, the unit of start times in proc(5).
_TICKS = os.sysconf("SC_CLK_TCK")


def opened(pid: int, device: re.Pattern[str], proc: Path) -> set[int]:
    """Return the numbers of the devices that a process has open. Raises OSError where that is hidden."""
    matches = map(device.fullmatch, process_table.open_files(pid, proc))
    return {int(match[1]) for match in matches if match}


class _GoneError(Exception):
    """GPUs do not answer; the text is from nvidia-smi."""


def _nvidia_smi(query: str, devices: Sequence[int], limit_s: float) -> str | None:
    """Return what nvidia-smi answers about these GPUs; None where it does not know the query. Raises _GoneError."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    argv = [tool, query, "--format=csv,noheader,nounits", "-i", ",".join(map(str, devices))]
    try:
        options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "env": english()}
        done = subprocess.run(argv, timeout=limit_s, check=False, **options)
    except subprocess.TimeoutExpired:
        raise _GoneError(f"nvidia-smi gave no answer within {limit_s:g} s") from None
    except OSError:
        return None
    if done.returncode in _GONE:
        lines = (done.stdout + done.stderr).decode("utf-8", "replace").split("\n")
        first = next((line.strip() for line in lines if line.strip()), f"status {done.returncode}")
        raise _GoneError(f"nvidia-smi: {first[:200]}")
    return None if done.returncode else done.stdout.decode("utf-8", "replace")


def _apps(devices: Sequence[int], limit_s: float) -> str | None:
    from .....trainyard.hardware.device_processes import APP_FIELDS

    return _nvidia_smi(f"--query-compute-apps={','.join(APP_FIELDS)}", devices, limit_s)


def holders(devices: Sequence[int], limit_s: float = LIMIT_S) -> tuple[str, list[Use]]:
    """Return the kind of these devices, GPU or NPU, and who holds them; nobody where the driver does not answer."""
    from .....trainyard.hardware import device_processes

    try:
        apps = _apps(devices, limit_s)
        if apps is not None:
            query = (
                f"--query-gpu={','.join(fields)}"
                for fields in (device_processes.GPU_FIELDS, device_processes.GPU_FIELDS[:-1])
            )
            answers = (_nvidia_smi(each, devices, limit_s) for each in query)
            known = device_processes.gpus(next(filter(None, answers), ""))
            return "GPU", device_processes.holding(device_processes.compute_apps(apps, known), known)
    except _GoneError:
        return "GPU", []
    tree = Tree()
    table, mapping = (tree.command("npu-smi", ["npu-smi", *words], limit_s) for words in (["info"], ["info", "-m"]))
    ids = mapping.output if mapping and not mapping.status else None
    uses = device_processes.npu_processes(table.output, ids) if table and not table.status else []
    return "NPU", device_processes.holding([use for use in uses if use.device in devices], {})


def lasting(devices: Sequence[int]) -> tuple[str, list[Use]]:
    """Return the same when the driver has had some seconds to forget processes that have ended."""
    until = time.monotonic() + FORGET_S
    while True:
        kind, uses = holders(devices)
        if all(process_table.start_time(use.pid) for use in uses) or time.monotonic() >= until:
            return kind, uses
        time.sleep(CHECK_S)


def described(
    kind: str, uses: Sequence[Use], without: Collection[str] = (), proc: Path = Path(process_table.PROC)
) -> list[str]:
    """Return a text for each process that holds devices, without processes of jobs in `without` and tools of ours."""
    from .....trainyard.hardware.device_processes import size

    held_by: dict[tuple[int, str], list[str]] = {}
    for use in uses:
        held_by.setdefault((use.pid, use.program), []).append(f"{size(use.mib)} of {kind} {use.device}")
    texts = []
    for (pid, program), amounts in held_by.items():
        job_id, environment = process_table.job_of(pid, proc), process_table.environment(pid, proc)
        if job_id in without or process_table.OWN_TOOL in environment:
            continue
        uid = process_table.user(pid, proc)
        whose = " in another container" if uid is None else f" of {user_name(uid) or uid}"
        who = f"process {pid} ({program}){whose}" if pid else "a process that the driver does not list"
        texts.append(f"{who}{f' (job {job_id})' if job_id else ''} holds {' and '.join(few(amounts, _MAX_HOLDERS))}")
    return few(texts, _MAX_HOLDERS)


def beside(devices: Sequence[int], job_id: str) -> str:
    """Return who else holds devices on which a rank of this job got no memory; "" for nobody."""
    kind, uses = holders(devices, FAILURE_S)
    return "; ".join(described(kind, uses, [job_id]))


def held(
    devices: Sequence[int],
    since: float,
    proc: Path = Path(process_table.PROC),
    limit_s: float = LIMIT_S,
    of_job: str = "",
) -> str:
    """Return which processes that began after `since` (s since boot) use these devices; "" without any.

    If NVIDIA's driver no longer finds the devices, its message is returned. Older processes did not keep the job from
    starting. With `of_job` only processes of this job count: it shares its devices.
    """
    from .....trainyard.hardware.device_processes import SERVERS, compute_apps

    try:
        apps = _apps(devices, limit_s)
    except _GoneError as error:
        return str(error)
    found = {} if apps is None else {use.pid: use.program for use in compute_apps(apps, {})}
    for pid in process_table.pids(proc) if apps is None else ():
        # Processes of other users are hidden.
        with contextlib.suppress(OSError):
            if opened(pid, ASCEND, proc).intersection(devices):
                found[pid] = process_table.name(pid, proc)
    here = {
        pid: name
        for pid, name in found.items()
        if name not in SERVERS and _began(proc / str(pid)) > since and of_job in ("", process_table.job_of(pid, proc))
    }
    return ", ".join(few([f"{name} (process {pid})" for pid, name in sorted(here.items())], _MAX_HOLDERS))


def few(texts: Sequence[str], limit: int) -> list[str]:
    """Return the first texts, and how many more there are."""
    return [*texts[:limit], *([f"{len(texts) - limit} more"] if len(texts) > limit else [])]


def _began(entry: Path) -> float:
    """Return when a process began, in s since boot; -1 if it is hidden, for example in another container."""
    try:
        return int((entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[19]) / _TICKS
    except (OSError, IndexError, ValueError):
        return -1.0
