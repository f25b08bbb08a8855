# SPDX-License-Identifier: Apache-2.0
"""Show that a task still runs: a line at most 10 s after the last output, and what it did when it has ended.

While a module runs on a node, nothing comes back from there. So a line has what the controller knows: the name of the
task, which should name packages, and the hosts. While pip or apt install, or something is built or downloaded, the
controller asks how far (task_progress.py), and the line has the host that is least far.
Times are seconds of a monotonic clock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from ...trainyard.base.findings import counted, host_list
from ...trainyard.job.run.logs.progress import clock
from ...trainyard.software import installed, pip_progress

# The interval of checks, and the silence after which a line comes: together less than 10 s.
CHECK_S, SILENT_S = 0.5, 9.0
# A task that takes longer than this is announced.
ANNOUNCE_AFTER_S = 2.0
# Before the first play a first line comes sooner: a user who has just called wants to see that it runs.
EARLY_S, BEFORE_PLAYS = 3.0, "reading the inventory and the playbook, and checking all input"
# These show progress themselves, or wait for the user.
OWN_PROGRESS = frozenset({"job_watch", "pause"})


def action_of(task: Any) -> str:
    """Return the name of a task's action, and with it its step, such as job_watch."""
    name: str = task.action.rpartition(".")[2]
    step = task.args.get("step")
    return f"{name}_{step}" if step else name


class RunningTask:
    """The task of a play that runs now."""

    def __init__(
        self,
        show: Callable[[str], None],
        shown_at: Callable[[], float],
        now: Callable[[], float] = time.monotonic,
        age_s: float = 0.0,
        progress: Callable[[Collection[str]], Mapping[str, Any]] = lambda _: {},
        show_early: Callable[[str], None] | None = None,
    ) -> None:
        """Take what prints a line, when anything was printed last, the clock, and for how long the command has run.

        `progress` returns how far an installation is on hosts (pip_progress.INSTALLING). `show_early` prints a line
        before the first play.
        """
        self._progress, self._show_early = progress, show_early or show
        self._show, self._shown_at, self._now = show, shown_at, now
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._before_plays, self._early, self._watched = True, False, False
        self._begin("", None)
        self._begun -= age_s

    def _begin(self, name: str, announce: Callable[[], None] | None, *, silent: bool = False) -> None:
        self._name, self._announce, self._silent = name, announce, silent
        self._begun = self._now()
        # By host, in the order of the starts: when it started; and those that have ended.
        self._started: dict[str, float] = {}
        self._ended: set[str] = set()
        self._done: list[tuple[str, str, float]] = []
        self._names_hosts = True

    def watch(self) -> None:
        """Check from now on in a thread of its own, once."""
        if self._watched:
            return
        self._watched = True
        threading.Thread(target=self._check, daemon=True).start()

    def _check(self) -> None:
        while not self._stop.wait(CHECK_S):
            self.check()

    def stop(self) -> None:
        """End the checks."""
        self._stop.set()

    def begin(self, task: Any, announce: Callable[[], None] | None = None) -> None:
        """Note that a task begins, and show what the previous one has done; `announce` prints its banner, once."""
        with self._lock:
            self._before_plays = False
            order = list(self._started)
            lines = installed.lines(sorted(self._done, key=lambda each: order.index(each[0])))
            action = action_of(task) if task else ""
            self._begin(str(task.name or action) if task else "", announce, silent=action in OWN_PROGRESS)
            # Such a task starts for one host on behalf of all, or runs here.
            self._names_hosts = bool(task) and not (task.run_once or task.delegate_to == "localhost")
        for line in lines:
            self._show(line)

    def started(self, host: str) -> None:
        """Note that the task starts on a host."""
        with self._lock:
            self._started[host] = self._now()

    def ended(self, host: str, action: str = "", result: dict[str, Any] | None = None) -> None:
        """Note that the task has ended on a host, with its result unless it failed."""
        with self._lock:
            self._ended.add(host)
            if host not in self._started or not result:
                return
            seconds = self._now() - self._started[host]
            items = [each for each in result.get("results") or () if isinstance(each, dict)]
            texts = list(filter(None, (installed.done_text(action, each) for each in (result, *items))))
            if not texts and result.get("changed") and seconds >= SILENT_S:
                texts = ["done"]
            self._done += [(host, ", ".join(texts), seconds)] if texts else []

    def check(self) -> None:
        """Announce a slow task; print a line if nothing was printed for too long."""
        with self._lock:
            if self._silent:
                return
            elapsed_s, silent_s = self._now() - self._begun, self._now() - self._shown_at()
            announce, line = None, ""
            if self._before_plays:
                early = elapsed_s >= EARLY_S and not self._early
                self._early = self._early or early
                line = f"  {clock(elapsed_s)}   {BEFORE_PLAYS}" if early or silent_s >= SILENT_S else ""
            elif self._announce and self._started and (elapsed_s >= ANNOUNCE_AFTER_S or silent_s >= SILENT_S):
                announce, self._announce = self._announce, None
            elif silent_s >= SILENT_S and self._started.keys() - self._ended:
                line = f"  {clock(elapsed_s)}   {self._name}{self._where()}"
            elif silent_s >= SILENT_S:
                # Templates of a thousand hosts take their time.
                line = f"  {clock(elapsed_s)}   the controller prepares the next task"
            show = self._show_early if self._before_plays else self._show
        if announce:
            announce()
        elif line:
            show(line)

    def _where(self) -> str:
        hosts = [host for host in self._started if host not in self._ended]
        far = self._progress(hosts)
        slowest = pip_progress.slowest(far)
        text = pip_progress.text(far[slowest]) if slowest else ""
        if not self._names_hosts or hosts == ["localhost"]:
            return f"; {text}" if text else ""
        others = f"; {counted(len(self._ended), 'host')} finished" if self._ended else ""
        of = f"{slowest}: " if len(hosts) > 1 else ""
        return f" on {host_list(hosts)}{others}" + (f"; {of}{text}" if text else "")
