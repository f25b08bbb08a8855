# SPDX-License-Identifier: Apache-2.0
"""Handle Ctrl-C and SIGTERM while ansible-playbook launches or watches a job.

Ansible's own handler kills the process of the running task, whatever it does on the nodes. This handler records the
signal for the tasks (`noted`), which finish and report. The command exits at once only before anything was started, or
at a second signal. trainyard/job/run/interrupted.py decides on the message.
"""

from __future__ import annotations

import atexit
import contextlib
import mmap
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ...trainyard.inputs import nothing_to_do
from ...trainyard.job.run import interrupted
from ...trainyard.job.run.interrupted import Phase

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# The first phase of each playbook; in others no job is under way at first.
BEGINS = {**dict.fromkeys(nothing_to_do.STARTS, Phase.PREPARING), "watch.yml": Phase.FINDING}
# Bytes that the processes of tasks share with their parent: whether there was a signal, and whether a watch of one job
# has lost its output.
_noted = mmap.mmap(-1, 2)
_early: list[int] = []


def noted() -> bool:
    """Tell, in the process of any task, whether this command was interrupted."""
    return _noted[0] == 1


def leaves() -> bool:
    """Tell, in the process of any task, whether a watch leaves its job: it was interrupted, or nobody can read it."""
    return noted() or _noted[1] == 1


def answer_early() -> None:
    """Print at exit that nothing was started if the command is interrupted before its callbacks are loaded.

    Until then the handlers are Ansible's, but Python also writes signals to a pipe (signal.set_wakeup_fd).
    """
    name = next((name for name in (Path(word).name for word in sys.argv[1:]) if name in BEGINS), "")
    if _early or not name:
        return
    readable, writable = os.pipe()
    for descriptor in (readable, writable):
        os.set_blocking(descriptor, False)
    _early.append(readable)
    signal.set_wakeup_fd(writable, warn_on_full_buffer=False)

    def say() -> None:
        with contextlib.suppress(BlockingIOError):
            if _early and signal.SIGINT in os.read(readable, 64):
                _print(interrupted.NOT_STARTED if BEGINS[name] is Phase.PREPARING else interrupted.NOT_WATCHED)

    atexit.register(say)


def _print(text: str) -> None:
    """Print from a signal handler, after output that is still buffered, unless it is just being written."""
    with contextlib.suppress(RuntimeError, OSError):
        sys.stdout.flush()
    with contextlib.suppress(OSError):
        os.write(1, f"\n{text}\n".encode())


class Interrupts:
    """Follows the phase of a playbook's job, and handles signals, for the callback that prints."""

    def __init__(self, playbook: str, inventory: str, show: Callable[..., None], tidy: Callable[[], None]) -> None:
        """Install the handlers. `show` prints outside of them; `tidy` removes Ansible's temporary files."""
        self._phase = BEGINS.get(playbook)
        self._one_job = playbook in BEGINS
        self._drills = playbook in ("drill.yml", "bisect.yml")
        self._inventory, self._show, self._tidy = inventory, show, tidy
        self._before = self._phase
        self._job_id = ""
        self._pid = os.getpid()
        # Time and number of the last signal; whether the command is about to exit.
        self._first, self._number, self._leaving = 0.0, signal.SIGINT, False
        self._usual = signal.getsignal(signal.SIGINT)
        signal.set_wakeup_fd(-1)
        _early.clear()
        for number in _SIGNALS:
            signal.signal(number, self._signalled)

    def _how(self) -> str:
        return interrupted.commands(self._job_id, self._inventory)

    def _signalled(self, number: int, frame: Any) -> None:
        # The process of a task inherits this handler.
        if os.getpid() != self._pid or self._leaving:
            return
        if self._phase is None:
            if callable(self._usual):
                self._usual(number, frame)
            return
        now = time.monotonic()
        if self._first and now - self._first < interrupted.TWICE_S:
            return
        reaction = interrupted.react(self._phase, bool(self._first), self._job_id, self._how())
        self._first, self._number = now, signal.Signals(number)
        _noted[0] = 1
        if reaction.text:
            _print(reaction.text)
        if reaction.leaves:
            self._leave(number, frame)

    def _leave(self, number: int, frame: Any) -> None:
        """End the process of the running task, and then this one.

        An exception would not do: Python ignores it at a fork, and Ansible would wait for a queue that stays locked if
        the task's process was just writing to it.
        """
        self._leaving = True
        with contextlib.suppress(KeyboardInterrupt):
            if callable(self._usual):
                self._usual(signal.SIGINT, frame)
        self._tidy()
        os._exit(128 + number)

    def output_lost(self) -> None:
        """Have a watch leave its job, as after a signal; what else this command does, it does to its end."""
        if self._one_job and not self._drills:
            _noted[1] = 1

    def _end(self, text: str) -> None:
        self._leaving = True
        self._show(text, stderr=_noted[1] == 1)
        raise SystemExit(128 + (self._number if noted() else signal.SIGPIPE))

    def task(self, action: str) -> None:
        """Enter the phase of a task that begins."""
        self._before = self._phase
        if self._drills:
            self._drill(action)
        elif action == "job_start":
            self._phase = Phase.STARTING
        elif action == "job_watch":
            self._phase = Phase.WATCHING

    def _drill(self, action: str) -> None:
        """Enter the phase of a task of a drill, which ends its job before this command ends."""
        if action in ("drill_folder", "job_start"):
            self._phase = Phase.DRILLING
        elif action == "drill_report":
            self._phase = Phase.REPORTED
            if noted():
                self._end(interrupted.DRILL_ENDED)

    def skipped(self, action: str) -> None:
        """Return to the previous phase after a task without work."""
        if self._drills:
            return
        self._phase = self._before
        if action == "job_watch" and self._phase is Phase.FINDING:
            self._phase = Phase.ENDED
        elif action == "job_watch" and self._phase is Phase.WATCHING:
            # The job is not watched; job_start has printed the next commands.
            self._phase = self._done()

    def failed(self, action: str) -> None:
        """End the phase of a task that failed; the playbook ends with its message."""
        if not self._drills and action in ("job_start", "job_watch", "job_report"):
            self._phase = self._done()

    def ok(self, action: str, result: Mapping[str, Any]) -> None:
        """Enter the phase after a task; if it was interrupted, end the command with a message."""
        if action in ("job_prepare", "job_runs_find"):
            self._job_id = result["job_id"]
        elif action == "drill_bisect" and noted() and result.get("reported"):
            self._end(interrupted.BISECT_ENDED)
        elif self._drills:
            return
        elif action == "job_start":
            if noted() and result.get("interrupted"):
                self._end(interrupted.NOT_STARTED)
            if noted() and not result["not_started"]:
                self._end(f"Job {self._job_id} has started on all its nodes, and goes on.\n{self._how()}")
            self._phase = Phase.ENDING if result["not_started"] else Phase.WATCHING
        elif action == "job_watch":
            if leaves() and result["goes_on"]:
                self._end(interrupted.goes_on(self._job_id, self._how(), result["lost"]))
            if noted():
                self._show(f"Job {self._job_id} has ended already. Bringing its logs and its result.")
            self._phase = Phase.WATCHING if result["lost"] else Phase.ENDED
        elif action == "job_report":
            self._phase = self._done()
            if noted() and not self._one_job:
                self._end("Interrupted: what was still to be run is not started.")

    def _done(self) -> Phase | None:
        return Phase.REPORTED if self._one_job else None
