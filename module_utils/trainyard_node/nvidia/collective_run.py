# SPDX-License-Identifier: Apache-2.0
"""Run a small all-reduce over GPUs of this machine (../../trainyard/nvidia/local_collective.py), as the job's user."""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import subprocess
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ...trainyard.nvidia.local_collective import LIMIT_S

if TYPE_CHECKING:
    from ..machine.as_user import Owner

# Upper bounds for the saved output in bytes and for reads at once, seconds between two reads, and seconds to end.
_MAX_BYTES, _READS, _TICK_S, _END_S = 1 << 18, 64, 0.1, 1.0


class Ran(NamedTuple):
    """The exit status of a program, None where it had to be ended, and its output."""

    status: int | None
    output: str


def run(
    command: Mapping[str, Any], env: Mapping[str, str], owner: Owner | None, limit_s: float = LIMIT_S
) -> Ran | None:
    """Run a command within a time; None where there is no such program for that user.

    With `owner` it has that user's rights alone, else the caller's. `env` is added to the command's environment.
    """
    user = _account(owner.uid if owner else os.geteuid())
    rights: dict[str, Any] = {"user": owner.uid, "group": owner.gid, "extra_groups": owner.groups} if owner else {}
    try:
        process = subprocess.Popen(
            command["argv"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={"PATH": os.defpath, "LC_ALL": "C", **user, **command["env"], **env},
            cwd="/",
            start_new_session=True,
            **rights,
        )
    except OSError:
        return None
    output = bytearray()
    try:
        _read(process, output, time.monotonic() + limit_s)
    finally:
        ended = _has_ended(process)
        # With all that it has started; as long as nobody has waited for it, no other group can have its number.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        # What hangs in its driver ends when the driver lets go of it.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END_S)
        if process.stdout:
            process.stdout.close()
    return Ran(process.returncode if ended else None, output.decode("utf-8", "replace"))


def _account(uid: int) -> dict[str, str]:
    with contextlib.suppress(KeyError):
        account = pwd.getpwuid(uid)
        return {"HOME": account.pw_dir, "USER": account.pw_name, "LOGNAME": account.pw_name}
    return {}


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _read(process: subprocess.Popen[bytes], output: bytearray, until: float) -> None:
    """Read the output up to the upper bound, until the process has ended or the time is over."""
    descriptor = process.stdout.fileno() if process.stdout else -1
    os.set_blocking(descriptor, False)
    while True:
        # What it output before its end can be read then. The end of the pipe tells nothing: others may have it open.
        over = _has_ended(process) or time.monotonic() >= until
        with contextlib.suppress(BlockingIOError):
            for _ in range(_READS):
                block = os.read(descriptor, 1 << 16)
                output += block[: _MAX_BYTES - len(output)]
        if over:
            return
        time.sleep(_TICK_S)
