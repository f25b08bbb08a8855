# SPDX-License-Identifier: Apache-2.0
"""Run Slurm's commands on a login host as the training user."""

from __future__ import annotations

import os
import pwd
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ..machine.programs import english

# Time limit of a command, in seconds: without a controller, commands never return.
PATIENCE_S = 60


class SlurmError(Exception):
    """A command of Slurm failed with this message."""


def as_user(user: str) -> list[str]:
    """Return the prefix that runs a command as `user`; empty if we are that user, or not root."""
    if not user or os.geteuid() != 0 or pwd.getpwuid(os.geteuid()).pw_name == user:
        return []
    return ["runuser", "-u", user, "--"]


def call(
    argv: Sequence[str],
    user: str = "",
    text: str | None = None,
    patience_s: float = PATIENCE_S,
    env: Mapping[str, str] | None = None,
) -> str:
    """Run a command, by default in our own environment, and return its output. Raises SlurmError with its message."""
    env = {**english(env), "SLURM_TIME_FORMAT": "%s"}
    try:
        done = subprocess.run(
            [*as_user(user), *argv],
            input=text,
            stdin=None if text is not None else subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env=env,
            cwd="/",
            timeout=patience_s,
            check=False,
        )
    except FileNotFoundError:
        raise SlurmError(f"no command {argv[0]} on this host") from None
    except subprocess.TimeoutExpired:
        raise SlurmError(f"{argv[0]} gave no answer within {patience_s:.0f} s") from None
    if done.returncode:
        raise SlurmError((done.stderr or done.stdout).strip() or f"{argv[0]} ended with status {done.returncode}")
    return done.stdout


def show(kind: str, name: str = "", user: str = "") -> list[str]:
    """Return the records of `scontrol show`, one line each; none for an unknown name."""
    argv = ["scontrol", "show", kind, *([name] if name else []), "-o"]
    try:
        return [line for line in call(argv, user).splitlines() if "=" in line]
    except SlurmError as error:
        if "Invalid job id" in str(error) or "not found" in str(error):
            return []
        raise


def wait_until_ended(engine_id: str, has_ended: Any, patience_s: float) -> bool:
    """Poll a job until it has ended or the time is up; returns whether it has ended."""
    deadline = time.monotonic() + patience_s
    while not has_ended(show("job", engine_id)):
        if time.monotonic() > deadline:
            return False
        time.sleep(1)
    return True
