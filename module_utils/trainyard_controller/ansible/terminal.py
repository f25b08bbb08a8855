# SPDX-License-Identifier: Apache-2.0
"""Guard all output: remove control characters, as texts of nodes and files reach the terminal in many ways.

Tasks, callbacks, warnings and errors all print through Ansible's Display, also those of tasks' own processes. Nothing
here raises OSError: the thread that takes the results of tasks ends at one, and Ansible waits for it for ever.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

from ansible.utils.display import Display

from ...trainyard.base.visible import visible, visible_but_colours
from . import task_progress
from .running_task import RunningTask

_colours = False
_shown_at = time.monotonic()
# Whether standard output is lost.
_lost = False


def _on_lost() -> None:
    """Do nothing, until when_lost() has it do something."""


def guard() -> None:
    """Guard Display from now on, here and in the processes of tasks."""
    raw = Display.display
    if getattr(raw, "is_guarded", False):
        return
    process = os.getpid()

    @functools.wraps(raw)
    def display(self: Display, msg: Any, *arguments: Any, **options: Any) -> None:
        text = msg.decode("utf-8", "replace") if isinstance(msg, bytes) else str(msg)
        global _shown_at
        _shown_at = time.monotonic()
        stream = sys.stderr if options.get("stderr") or arguments[1:2] == (True,) else sys.stdout
        try:
            raw(self, visible_but_colours(text) if _colours else visible(text), *arguments, **options)
            # Otherwise a pipe or a file gets the lines of a job's progress minutes later.
            stream.flush()
        except ValueError:
            # It is closed.
            return
        except OSError as error:
            if os.getpid() == process:
                _lose(stream, error)

    display.is_guarded = True  # type: ignore[attr-defined]
    Display.display = display


def _lose(stream: TextIO, error: OSError) -> None:
    """Send nowhere what cannot be written, and what follows: an error would come again when the stream is closed."""
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), stream.fileno())
    if stream is sys.stdout:
        global _lost
        _lost = True
        _on_lost()
        Display().warning(f"the output cannot be written, and is not shown any more: {error.strerror}")


def when_lost(call: Callable[[], None]) -> None:
    """Call this when standard output cannot be written any more."""
    global _on_lost
    _on_lost = call
    if _lost:
        call()


@contextlib.contextmanager
def colours() -> Iterator[None]:
    """Let Ansible's own colours through meanwhile."""
    global _colours
    _colours = True
    try:
        yield
    finally:
        _colours = False


def shown_at() -> float:
    """Return when anything was printed last, in seconds of the monotonic clock."""
    return _shown_at


@functools.cache
def running_task() -> RunningTask:
    """Guard Display; return the task of this command that runs, which plugins show from the first one on."""
    guard()
    task_progress.guard()
    show = Display().display
    # A program that reads standard output finds the first play at its begin.
    early = functools.partial(show, stderr=True)
    return RunningTask(show, shown_at, age_s=_age_s(), progress=task_progress.read, show_early=early)


def _age_s() -> float:
    """Return how long this process has run, in seconds; 0 where that cannot be read."""
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0
