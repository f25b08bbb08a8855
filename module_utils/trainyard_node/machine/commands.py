# SPDX-License-Identifier: Apache-2.0
"""Run a command to its end, without input."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from typing import Any

from .programs import english
from .tree import Outcome

# Exit status of a command that did not end in time, as of coreutils' timeout, and of one that could not be started.
TIMED_OUT, NOT_STARTED = 124, 127


def run(argv: Sequence[str], timeout: float | None = None, **settings: Any) -> Outcome:
    """Return the exit status and the output (stdout and stderr together); `settings` are those of subprocess.run.

    The program prints English.
    """
    settings["env"] = english(settings.get("env"))
    both: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    try:
        done = subprocess.run(list(argv), check=False, timeout=timeout, **both, **settings)
    except subprocess.TimeoutExpired:
        return Outcome(TIMED_OUT, f"no end of {argv[0]} within {timeout:.0f} s")
    except OSError as error:
        return Outcome(NOT_STARTED, f"{argv[0]}: {error.strerror}")
    return Outcome(done.returncode, done.stdout.decode("utf-8", "replace"))


def follow(argv: Sequence[str], each: Callable[[str], None], **settings: Any) -> Outcome:
    """Run a command as run() does, and call `each` with every line that it prints."""
    settings["env"] = english(settings.get("env"))
    lines = []
    both: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    try:
        process = subprocess.Popen(list(argv), **both, **settings)
    except OSError as error:
        return Outcome(NOT_STARTED, f"{argv[0]}: {error.strerror}")
    with process:
        for line in process.stdout or ():
            lines.append(line.decode("utf-8", "replace"))
            each(lines[-1].rstrip("\n"))
    return Outcome(process.returncode, "".join(lines))
