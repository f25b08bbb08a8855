# SPDX-License-Identifier: Apache-2.0
"""Watch a job from the controller: a line of progress each round, until the job ends.

Over ssh only the head node is asked, as its monitor has the reports of all others; otherwise the scheduler. So watching
costs the same for 4 and for 4,000 nodes, and an interrupted watcher changes nothing for the job.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Protocol

from ..trainyard.cluster.unreachable import reason
from ..trainyard.job.run import log_lines as folding
from .live_page import EVERY_S, LivePage
from .scheduler_clients import Answer, Ask, external_job

# Maximum silence of a head, in seconds; its nodes give it up earlier (SILENT_AFTER_S).
GIVE_UP_S = 20.0
# Seconds that an answer may take beyond the requested wait, and after which the user is told.
LIMIT_S, TELL_S = 30.0, 20.0
# Seconds between two polls for lines of ranks, and the longest wait for a slow node.
FOLLOW_S = 1.0
# Seconds that a node may take for an answer, and for which a node without one is not asked again.
ANSWER_S = 10.0
# Interval of the check for an interrupt, in seconds.
INTERRUPTED_S = 0.2
# Maximum silence of a scheduler, in seconds; the job goes on then.
GIVE_UP_SCHEDULER_S = 60.0


def pause(elapsed_s: float) -> float:
    """Seconds between two lines: close at first, so that one sees it run, then further apart."""
    return 2.0 if elapsed_s < 60 else 10.0 if elapsed_s < 1800 else 30.0


class LeftError(Exception):
    """The user interrupted watching."""


class Watched(Protocol):
    """A job that is watched: `host`, shown as `who`, is asked, and may be silent for `patience_s`; `then` follows."""

    host: str
    who: str
    patience_s: float
    then: str

    def read(self, wait_s: float) -> Mapping[str, Any]:
        """Return `state`, `line` and `told` after `wait_s` seconds or at its end; without `state` why there is none.

        `stalled` says that the job's monitor has reported nothing since the last look.
        """


class OverSsh:
    """A job over ssh: its head waits for the end, and says at once when it is there."""

    then = "then the other nodes are asked how the job ended, and end what still runs"

    def __init__(self, plan: Mapping[str, Any], ask: Ask) -> None:
        """Take the plan; a head that was lost may come back while restarts are left."""
        self.host, self._ask = plan["head"]["host"], ask
        self.who = f"head node {self.host}"
        self._job = {"job_id": plan["job_id"], "job_dir": plan["job_dir"]}
        self._rejoin_s = float(plan["rejoin_s"]) if plan["max_restarts"] else 0.0
        self.patience_s = GIVE_UP_S + self._rejoin_s
        self._alive = time.monotonic()
        self._reported_at: object = None

    def read(self, wait_s: float) -> Mapping[str, Any]:
        """Ask the head, whose monitor knows of all others."""
        found = self._ask("state", {self.host: {**self._job, "wait_s": wait_s}}, limit_s=wait_s + LIMIT_S)[self.host]
        if "known" not in found:
            self._alive = time.monotonic() + 1
            return found
        state = "over"
        if found["monitor_alive"]:
            self._alive, state = time.monotonic(), "running"
        elif found.get("monitor_lost", {}).get("restarted") and time.monotonic() - self._alive < self._rejoin_s:
            # A head that has just come back answers before its monitor runs again; one that was killed stays away.
            time.sleep(1)
            state = "running"
        if (found.get("cluster") or {}).get("end"):
            state = "over"
        # A monitor that works writes another time every second.
        before, self._reported_at = self._reported_at, (found.get("cluster") or {}).get("elapsed_s")
        stalled = found["monitor_alive"] and state == "running" and before is not None and before == self._reported_at
        told, note = found.get("restarts", ()), found.get("note", "")
        return {"state": state, "line": found.get("line", ""), "note": note, "told": told, "stalled": stalled}


class ExternalWatch:
    """A job that a scheduler was handed: it serves everybody, so it is asked less often than a monitor of our own."""

    patience_s = GIVE_UP_SCHEDULER_S
    then = "then it is not watched any more, and goes on"

    def __init__(self, plan: dict[str, Any], run_dir: Path, ask: Ask) -> None:
        """Take the plan and the folder of the run."""
        self.host = self.who = plan["engine"]["submit_host"]
        self._job, self._asked = external_job(plan, run_dir.parent, ask), False

    def read(self, wait_s: float) -> Mapping[str, Any]:
        """Ask the scheduler; the first time at once."""
        if self._asked:
            time.sleep(max(3.0, wait_s))
        self._asked = True
        found = self._job.state(waits=True)
        if "state" not in found and not found.get("unreachable"):
            return {"state": "unknown", "line": "", "why": reason(found) or "no answer"}
        return found


class Lines:
    """The lines of ranks, asked of their nodes, of each by itself: one that is slow or gone keeps back only its own."""

    def __init__(self, plan: Mapping[str, Any], ranks: Mapping[str, Mapping[str, int]], ask: Ask) -> None:
        """Take the plan and the logs to follow (following.logs)."""
        self._job_dir, self._ranks, self._ask = plan["job_dir"], ranks, ask
        self._silent_until: dict[str, float] = {}
        self._offsets: dict[str, dict[str, int | None]] = {host: dict.fromkeys(names) for host, names in ranks.items()}
        self._under_way: set[str] = set()
        self._answers: queue.SimpleQueue[tuple[str, Answer]] = queue.SimpleQueue()

    def read(self, patience_s: float) -> list[str]:
        """Return what was added since the last time, as it is shown; what comes later than `patience_s`, next time."""
        now = time.monotonic()
        asked = [
            host for host in self._offsets if host not in self._under_way and now >= self._silent_until.get(host, now)
        ]
        for host in asked:
            self._under_way.add(host)
            threading.Thread(target=self._visit, args=(host, dict(self._offsets[host])), daemon=True).start()
        return self._come(asked, patience_s)

    def rest(self) -> list[str]:
        """Return what is still to come of a job that is over: now the slow ones are waited for, too."""
        return [*self._come(set(self._under_way), ANSWER_S), *self.read(ANSWER_S)]

    def _visit(self, host: str, offsets: Mapping[str, int | None]) -> None:
        answer: Answer = {}
        try:
            answer = self._ask("follow", {host: {"job_dir": self._job_dir, "offsets": offsets}}, limit_s=ANSWER_S)[host]
        finally:
            self._answers.put((host, answer))

    def _come(self, awaited: Collection[str], patience_s: float) -> list[str]:
        """Return the lines of all answers that are there, once those awaited are, or patience ends."""
        until = time.monotonic() + patience_s
        lines: dict[int, list[str]] = {}
        skipped: dict[int, int] = {}
        while True:
            waits = not self._under_way.isdisjoint(awaited)
            try:
                host, answer = self._answers.get(timeout=max(0.0, until - time.monotonic()) if waits else 0)
            except queue.Empty:
                break
            self._under_way.discard(host)
            if "logs" not in answer:
                self._silent_until[host] = time.monotonic() + ANSWER_S
            for name, log in answer.get("logs", {}).items():
                if name in self._ranks[host]:
                    rank = self._ranks[host][name]
                    self._offsets[host][name] = log["offset"]
                    # A rank that a spare has taken has a log on two nodes.
                    lines.setdefault(rank, []).extend(log["lines"])
                    skipped[rank] = skipped.get(rank, 0) + log["skipped"]
        left = [f"[{rank}] ... {size} bytes, in the log" for rank, size in sorted(skipped.items()) if size]
        return [*left, *folding.folded(lines)]


def follow(
    job: Watched,
    forget: Callable[[str], None],
    show: Callable[[str], None],
    lines: Lines | None = None,
    page: LivePage | None = None,
    interrupted: Callable[[], bool] = lambda: False,
) -> str:
    """Show the progress of a job until it ends; returns why its end is not known, or "".

    `lines` of ranks are shown every second or so, independently of the head and the page. The `page` is written every
    10 s. Raises LeftError as soon as it is `interrupted`.
    """
    view = _View(job, show, page)
    stop = threading.Event()
    reader = threading.Thread(target=_show_lines, args=(lines, show, stop), daemon=True)
    if lines:
        reader.start()
    try:
        while True:
            wait_s = view.wait_s()
            found = _poll(job, min(wait_s, EVERY_S) if page else wait_s, interrupted, view.show_silence)
            view.write_page()
            if "state" not in found:
                if view.no_answer():
                    return reason(found) or "no answer"
                forget(job.host)
                time.sleep(1)
                continue
            view.answered(found)
            ended = found["state"] not in ("pending", "running")
            if lines and ended:
                stop.set()
                reader.join()
                for line in lines.rest():
                    show(line)
            view.show_progress(found)
            if ended:
                return str(found.get("why", ""))
    finally:
        stop.set()


class _View:
    """The lines that a user has seen of a job, and when. Times are those of time.monotonic()."""

    def __init__(self, job: Watched, show: Callable[[str], None], page: LivePage | None) -> None:
        self._job, self._show, self._page = job, show, page
        self._begun = self._answered_at = self._reported_at = self._progress_at = time.monotonic()
        self._page_at = self._begun - EVERY_S
        self._wait_s = 0.0
        self._notes: set[str] = set()
        self._line, self._events = "", 0
        # After how many seconds silence is shown next, how often it was, and whether only the job's monitor is silent.
        self._silence_due_s, self._silences, self._stalled = 0.0, 0, False

    def wait_s(self) -> float:
        """Return the seconds until the next line."""
        self._wait_s = pause(time.monotonic() - self._begun)
        self._silence_due_s = self._silence_due_s or self._wait_s + TELL_S
        return self._wait_s

    def show_silence(self) -> None:
        """Say, at ever longer intervals, that the host or the job's monitor is silent."""
        silent_s = time.monotonic() - (self._reported_at if self._stalled else self._answered_at)
        if silent_s >= self._silence_due_s:
            job, wait_s = self._job, self._wait_s
            self._show(f"  {stalled_text(job, silent_s) if self._stalled else silence_text(job, silent_s, wait_s)}")
            self._silence_due_s, self._silences = 3 * self._silence_due_s, self._silences + 1

    def write_page(self) -> None:
        """Write the page, if that is due."""
        if self._page and time.monotonic() - self._page_at >= EVERY_S:
            self._page.write()
            self._page_at = time.monotonic()

    def no_answer(self) -> bool:
        """Note that there was no answer; return whether patience has ended."""
        if self._stalled:
            self._stalled, self._silence_due_s = False, 0.0
        return time.monotonic() - self._answered_at > self._job.patience_s

    def answered(self, found: Mapping[str, Any]) -> None:
        """Note an answer, and show that a silence has ended."""
        self._answered_at, was_stalled = time.monotonic(), self._stalled
        self._stalled = bool(found.get("stalled"))
        if self._stalled:
            return
        if self._silences:
            again = "reports" if was_stalled else "answers"
            self._show(f"  {self._job.who} {again} again after {self._answered_at - self._reported_at:.0f} s")
        self._reported_at, self._silence_due_s, self._silences = self._answered_at, 0.0, 0

    def show_progress(self, found: Mapping[str, Any]) -> None:
        """Show new events, the line of progress, and a new note."""
        events = found.get("told", ())
        for event in events[self._events :]:
            self._show(f"  {event}")
        self._events = max(self._events, len(events))
        # The reason for waiting is shown when it changes; progress each time.
        running = found["state"] == "running"
        due = not self._page or not running or time.monotonic() - self._progress_at >= self._wait_s
        if due and found["line"] and (found["line"] != self._line or (running and not self._silences)):
            self._show(f"  {found['line']}")
            self._line, self._progress_at = found["line"], time.monotonic()
        if found.get("note") and found["note"] not in self._notes:
            self._show(f"  {found['note']}")
            self._notes.add(found["note"])


def silence_text(job: Watched, silent_s: float, wait_s: float) -> str:
    """Say that the host gave no answer, how long it still may, and what follows."""
    left_s = max(job.patience_s, wait_s + LIMIT_S) - silent_s
    found = f"{job.who} gave no answer for {silent_s:.0f} s; ranks may still run"
    return f"{found}. It is asked for up to {max(0.0, left_s):.0f} s more; {job.then}"


def stalled_text(job: Watched, silent_s: float) -> str:
    """Say that the host answers, but knows nothing new of the job."""
    found = f"{job.who} answers, but its monitor reported nothing for {silent_s:.0f} s; ranks may still run"
    return f"{found}. It may be stopped, or its disk full: look there, or end the job with stop.yml"


def _poll(
    job: Watched, wait_s: float, interrupted: Callable[[], bool], meanwhile: Callable[[], None]
) -> Mapping[str, Any]:
    """Poll from a thread of its own, so that an interrupt does not wait for the answer."""
    answers: queue.SimpleQueue[Mapping[str, Any] | Exception] = queue.SimpleQueue()

    def read() -> None:
        try:
            answers.put(job.read(wait_s))
        except Exception as error:
            answers.put(error)

    threading.Thread(target=read, daemon=True).start()
    while not interrupted():
        meanwhile()
        with contextlib.suppress(queue.Empty):
            found = answers.get(timeout=INTERRUPTED_S)
            if isinstance(found, Exception):
                raise found
            return found
    raise LeftError


def _show_lines(lines: Lines, show: Callable[[str], None], stop: threading.Event) -> None:
    while not stop.wait(FOLLOW_S):
        for line in lines.read(FOLLOW_S):
            show(line)
