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
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...machine.programs import english
from . import processes

NVIDIA, ASCEND = re.compile(r"/dev/nvidia(\d+)"), re.compile(r"/dev/davinci(\d+)")
# Time limit of nvidia-smi, and the pause between two checks, in seconds.
LIMIT_S, CHECK_S = 20.0, 1.0
# This server keeps a context on each GPU for its clients.
_SERVERS = ("nvidia-cuda-mps-server",)
_MAX_HOLDERS = 4
# Statuses of nvidia-smi for a missing GPU, power cable, driver or interrupt, or a GPU that fell off the bus
# (nvidia-smi(1), RETURN VALUE): no attempt can start there.
_GONE = frozenset((6, 8, 9, 10, 15))
# Clock ticks per second, the unit of start times in proc(5).
_TICKS = os.sysconf("SC_CLK_TCK")


def opened(pid: int, device: re.Pattern[str], proc: Path) -> set[int]:
    """Return the numbers of the devices that a process has open. Raises OSError where that is hidden."""
    matches = map(device.fullmatch, processes.open_files(pid, proc))
    return {int(match[1]) for match in matches if match}


def compute_apps(text: str) -> dict[int, str]:
    """Read `nvidia-smi --query-compute-apps=pid,process_name --format=csv,noheader`: program by process id."""
    found = {}
    for line in text.splitlines():
        pid, comma, name = line.partition(",")
        if comma and pid.strip().isdecimal():
            found[int(pid)] = name.strip().rpartition("/")[2][:80] or "a program"
    return found


class _GoneError(Exception):
    """GPUs do not answer; the text is from nvidia-smi."""


def _of_nvidia(devices: Sequence[int], limit_s: float) -> dict[int, str] | None:
    """Return the processes with a context on these GPUs; None without an NVIDIA driver. Raises _GoneError."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    which = ["-i", ",".join(map(str, devices))]
    query = [tool, "--query-compute-apps=pid,process_name", "--format=csv,noheader", *which]
    try:
        options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "env": english()}
        done = subprocess.run(query, timeout=limit_s, check=False, **options)
    except subprocess.TimeoutExpired:
        raise _GoneError(f"nvidia-smi gave no answer within {limit_s:g} s") from None
    except OSError:
        return None
    if done.returncode in _GONE:
        lines = (done.stdout + done.stderr).decode("utf-8", "replace").split("\n")
        first = next((line.strip() for line in lines if line.strip()), f"status {done.returncode}")
        raise _GoneError(f"nvidia-smi: {first[:200]}")
    if done.returncode:
        return None
    return compute_apps(done.stdout.decode("utf-8", "replace"))


def held(devices: Sequence[int], since: float, proc: Path = Path(processes.PROC), limit_s: float = LIMIT_S) -> str:
    """Return which processes that began after `since` (s since boot) use these devices; "" without any.

    If NVIDIA's driver no longer finds the devices, its message is returned. Older processes did not keep the job from
    starting.
    """
    try:
        found = _of_nvidia(devices, limit_s)
    except _GoneError as error:
        return str(error)
    if found is None:
        found = {}
        for pid in processes.pids(proc):
            # Processes of other users are hidden.
            with contextlib.suppress(OSError):
                if opened(pid, ASCEND, proc).intersection(devices):
                    found[pid] = processes.name(pid, proc)
    here = {pid: name for pid, name in found.items() if name not in _SERVERS and _began(proc / str(pid)) > since}
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
