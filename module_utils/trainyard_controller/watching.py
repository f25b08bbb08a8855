# SPDX-License-Identifier: Apache-2.0
"""Watch a job from the controller: a line of progress each round, until the job is over.

Over ssh only the head node is asked; its monitor knows of all others. So watching costs the same for 4 and for 4,000
nodes, and a watcher that is interrupted changes nothing for the job. Elsewhere it is the scheduler that is asked.
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

# A head that cannot be asked for so long is given up here; its nodes have given it up before (SILENT_AFTER_S).
GIVE_UP_S = 20.0
# How long an answer about a job may take beyond what it was asked to wait, and after how much of that the user is told.
LIMIT_S, TELL_S = 30.0, 20.0
# Between two looks for lines of ranks, and how long those of all wait for a node that begins to be slow.
FOLLOW_S = 1.0
# How long a node may take for its answer at all; one that gave none is left alone for as long.
ANSWER_S = 10.0
# How often it is looked whether somebody has interrupted it.
INTERRUPTED_S = 0.2
# Nobody else ends a job for want of a watcher.
GIVE_UP_SCHEDULER_S = 60.0


def pause(elapsed_s: float) -> float:
    """Seconds between two lines: close at first, so that one sees it run, then further apart."""
    return 2.0 if elapsed_s < 60 else 10.0 if elapsed_s < 1800 else 30.0


class LeftError(Exception):
    """Somebody does not want to watch any more."""


class Watched(Protocol):
    """A job that is watched: `host`, shown as `who`, is asked, and may be silent for `patience_s`; `then` follows."""

    host: str
    who: str
    patience_s: float
    then: str

    def look(self, wait_s: float) -> Mapping[str, Any]:
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

    def look(self, wait_s: float) -> Mapping[str, Any]:
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

    def look(self, wait_s: float) -> Mapping[str, Any]:
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
    """Show how a job gets on until it is over; returns why that is not known any more, or "".

    Raises LeftError as soon as it is `interrupted`.

    The `lines` of ranks come meanwhile, every second or so, whatever the head and the page wait for. The `page` is
    written every 10 s.
    """
    begun = answered = reported = time.monotonic()
    notes: set[str] = set()
    said, told, progress_at, page_at = "", 0, begun, begun - EVERY_S
    # After how much silence that is shown next, and how often it was; whether only the job's monitor is silent.
    tell_s, tellings, stalled = 0.0, 0, False

    def tell_silence() -> None:
        nonlocal tell_s, tellings
        silent_s = time.monotonic() - (reported if stalled else answered)
        if silent_s >= tell_s:
            show(f"  {stalled_text(job, silent_s) if stalled else silence_text(job, silent_s, wait_s)}")
            tell_s, tellings = 3 * tell_s, tellings + 1

    stop = threading.Event()
    reader = threading.Thread(target=_show_lines, args=(lines, show, stop), daemon=True)
    if lines:
        reader.start()
    try:
        while True:
            wait_s = pause(time.monotonic() - begun)
            tell_s = tell_s or wait_s + TELL_S
            found = _look(job, min(wait_s, EVERY_S) if page else wait_s, interrupted, tell_silence)
            if page and time.monotonic() - page_at >= EVERY_S:
                page.write()
                page_at = time.monotonic()
            if "state" not in found:
                if stalled:
                    stalled, tell_s = False, 0.0
                if time.monotonic() - answered > job.patience_s:
                    return reason(found) or "no answer"
                forget(job.host)
                time.sleep(1)
                continue
            answered, was, stalled = time.monotonic(), stalled, bool(found.get("stalled"))
            if not stalled:
                if tellings:
                    show(f"  {job.who} {'reports' if was else 'answers'} again after {answered - reported:.0f} s")
                reported, tell_s, tellings = answered, 0.0, 0
            over = found["state"] not in ("pending", "running")
            if lines and over:
                stop.set()
                reader.join()
                for line in lines.rest():
                    show(line)
            for event in found.get("told", ())[told:]:
                show(f"  {event}")
            told = max(told, len(found.get("told", ())))
            # Why a job waits is said when it changes; progress each time.
            due = not page or found["state"] != "running" or time.monotonic() - progress_at >= wait_s
            if due and found["line"] and (found["line"] != said or (found["state"] == "running" and not tellings)):
                show(f"  {found['line']}")
                said, progress_at = found["line"], time.monotonic()
            if found.get("note") and found["note"] not in notes:
                show(f"  {found['note']}")
                notes.add(found["note"])
            if over:
                return str(found.get("why", ""))
    finally:
        stop.set()


def silence_text(job: Watched, silent_s: float, wait_s: float) -> str:
    """Say that the host gave no answer, how long it still may, and what follows."""
    left_s = max(job.patience_s, wait_s + LIMIT_S) - silent_s
    found = f"{job.who} gave no answer for {silent_s:.0f} s; ranks may still run"
    return f"{found}. It is asked for up to {max(0.0, left_s):.0f} s more; {job.then}"


def stalled_text(job: Watched, silent_s: float) -> str:
    """Say that the host answers, but knows nothing new of the job."""
    found = f"{job.who} answers, but its monitor reported nothing for {silent_s:.0f} s; ranks may still run"
    return f"{found}. It may be stopped, or its disk full: look there, or end the job with stop.yml"


def _look(
    job: Watched, wait_s: float, interrupted: Callable[[], bool], meanwhile: Callable[[], None]
) -> Mapping[str, Any]:
    """Look from a thread of its own, as whoever interrupts does not wait for the answer."""
    answers: queue.SimpleQueue[Mapping[str, Any] | Exception] = queue.SimpleQueue()

    def look() -> None:
        try:
            answers.put(job.look(wait_s))
        except Exception as error:
            answers.put(error)

    threading.Thread(target=look, daemon=True).start()
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
