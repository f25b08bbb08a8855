# SPDX-License-Identifier: Apache-2.0
"""Watch a job from the controller: a line of progress each round, until the job ends.

Only the head node is queried, whose monitor has the reports of all others, or the scheduler; when the head is lost, the
few hosts that may take over from it. So watching costs the same for 4 and for 4,000 nodes, and an interrupted watcher
changes nothing for the job.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from ...trainyard.cluster.unreachable import reason
from ...trainyard.job.run.lead import leader
from ...trainyard.job.run.logs.live_lines import LiveLines, without_clock
from ...trainyard.job.run.logs.log_lines import folded
from ...trainyard.job.run.logs.progress import clock
from ...trainyard.job.run.measure import saving
from .heads import LIMIT_S, Head
from .schedulers.scheduler_clients import Answer, Ask, external_job

# Seconds for which a silent job is asked in any case, and those between its plan and its start at most.
GIVE_UP_S, START_S = 20.0, 600.0
# Seconds after the job's time and the time to save after which systemd ends a monitor.
MONITOR_S = 60.0
# Seconds beyond the requested wait after which silence is shown.
TELL_S = 20.0
# Seconds between two polls for lines of ranks, and the longest wait for a slow node.
FOLLOW_S = 1.0
# Seconds that a node may take for an answer, and for which a silent node is not queried again.
ANSWER_S = 10.0
# Seconds after which a line of progress is repeated although nothing is new: with the time of a poll less than 10.
EQUAL_S = 7.5
# Seconds for which the choice of a new head is polled every second.
ELECTION_S = 90.0
# Seconds between two pages of a live job; the browser reloads as often.
PAGE_S = 10.0
# Interval of the check for an interrupt, in seconds.
INTERRUPTED_S = 0.2
# Shortest time between two queries of a scheduler, in seconds.
POLL_S = 3.0
# Time between two queries about a job whose hosts have ended it, in seconds.
ENDING_S = 0.5
# Maximum silence of a scheduler, in seconds; the job goes on then.
GIVE_UP_SCHEDULER_S = 60.0


def pause(elapsed_s: float) -> float:
    """Return the seconds between two lines, short ones at first."""
    return 2.0 if elapsed_s < 60 else 9.0 if elapsed_s < 1800 else 30.0


def may_live_until(plan: Mapping[str, Any]) -> float:
    """Return the time of time.monotonic() after which no monitor of this plan can still run."""
    created = datetime.strptime(plan["created"], "%Y-%m-%dT%H:%M:%S%z").timestamp()
    lives_s = START_S + float(plan["timeout_s"]) + saving.grace_s(plan) + MONITOR_S
    return time.monotonic() + max(GIVE_UP_S, created + lives_s - time.time())


class LeftError(Exception):
    """The user interrupted watching."""


class OverSsh:
    """A job over ssh: its head answers as soon as the job ends.

    `host`, shown as `title`, is queried until `until`, and at least for `patience_s` after its last answer; `then` says
    what follows. Where the head can be replaced by another host, the watch goes on with that one.
    """

    patience_s, then = GIVE_UP_S, "the watch ends nothing"

    def __init__(
        self,
        plan: Mapping[str, Any],
        ask: Ask,
        forget: Callable[[str], None] = lambda _: None,
        enough: Callable[[Mapping[str, Any]], bool] = lambda _: False,
    ) -> None:
        """Take the plan; a lost head may come back while restarts are left. `forget` as for Head.

        The watch also ends when `enough` says so of the state of the job (cluster.json), which goes on.
        """
        self._plan, self._head, self._enough = plan, Head(plan, ask, forget), enough
        self._rejoin_s = float(plan["rejoin_s"]) if plan["max_restarts"] else 0.0
        self.until = may_live_until(plan)
        self._alive = self._led = time.monotonic()
        if len(leader.hosts(plan)) > 1:
            self.then = "meanwhile the other nodes may choose a new head, which is watched then"

    @property
    def host(self) -> str:
        """Return the host that leads the job, as far as is known."""
        return self._head.host

    @property
    def title(self) -> str:
        """Return how the host is shown."""
        return f"head node {self.host}"

    def read(self, wait_s: float) -> Mapping[str, Any]:
        """Return `state`, `line`, its `lasting` parts and `told` (events) after `wait_s` or at its end, or a failure.

        `stalled`: the job's monitor has reported nothing since the last call.
        """
        before = self.host
        answers = self._head.states(wait_s)
        phase = leader.phase(self._plan, answers)
        if phase == leader.SILENT:
            self._alive = time.monotonic() + 1
            return next((answer for answer in answers.values() if "known" not in answer), {})
        if phase == leader.ELECTION:
            self._alive = time.monotonic()
            # The nodes need about half a minute. Where only the controller does not reach the head, this does not end.
            time.sleep(wait_s if self._alive - self._led > ELECTION_S else min(wait_s, 1.0))
            return {"state": "running", "line": leader.election_text(self._plan, before, answers)}
        found, state = answers.get(self.host) or {}, "running" if phase == leader.LED else "over"
        may_return = any((answer.get("monitor_lost") or {}).get("restarted") for answer in answers.values())
        may_return = may_return and time.monotonic() - self._alive < self._rejoin_s
        if phase == leader.LED:
            self._alive = self._led = time.monotonic()
        elif may_return and not leader.has_ended(self._plan, answers):
            # A head that has just come back answers before its monitor runs again; one that was killed stays away.
            time.sleep(1)
            state = "running"
        told, note, lasting = found.get("restarts", ()), found.get("note", ""), found.get("lasting", {})
        if self.host != before:
            note = f"{self.host} leads the job now, in the place of {before}"
        stalled = phase == leader.LED and self._head.stalled
        shown = {"line": found.get("line", ""), "lasting": lasting, "note": note}
        cluster = found.get("cluster") or {}
        stuck = bool(cluster.get("no_progress"))
        state = "over" if self._enough(cluster) else state
        return {"state": state, **shown, "told": told, "stalled": stalled, "stuck": stuck}


class ExternalWatch:
    """A job of an external scheduler, which serves all users, so it is polled less often than a monitor."""

    # Nobody knows how long a job waits in the queue.
    until, patience_s = 0.0, GIVE_UP_SCHEDULER_S
    then = "then it is not watched any more, and goes on"

    def __init__(self, plan: dict[str, Any], run_dir: Path, ask: Ask) -> None:
        """Take the plan and the folder of the run."""
        self.host = self.title = plan["engine"]["submit_host"]
        self._job, self._polled = external_job(plan, run_dir.parent, ask), False
        # Once the hosts of an allocation have planned, they are asked as over ssh.
        self._nodes: OverSsh | None = None

    def read(self, wait_s: float) -> Mapping[str, Any]:
        """Query the scheduler, the first time at once, or the nodes of a job that runs."""
        if self._nodes is not None:
            found = self._nodes.read(wait_s)
            if found.get("state") == "running":
                return found
        elif self._polled:
            time.sleep(max(POLL_S, wait_s))
        self._polled = True
        found = self._job.state(waits=True)
        runs = found.get("state") == "running" and self._job.planned(found)
        if runs and self._nodes is not None:
            # The scheduler needs a moment to end the job, or to put it into the queue again.
            time.sleep(ENDING_S)
            return {**found, "line": ""}
        self._nodes = OverSsh(self._job.plan, self._job.ask) if runs else None
        if self._nodes is not None:
            return self._nodes.read(0.0)
        if "state" not in found and not found.get("unreachable"):
            # Its logs are collected from there, which reports why.
            return {"state": "unknown", "line": ""}
        return found


Watched = OverSsh | ExternalWatch


class Lines:
    """The lines of ranks. Each node is queried in its own thread, so a slow one delays only its own lines."""

    def __init__(self, plan: Mapping[str, Any], ranks: Mapping[str, Mapping[str, int]], ask: Ask) -> None:
        """Take the plan and the logs to follow (log_lines.logs)."""
        self._job_dir, self._ranks, self._ask = plan["job_dir"], ranks, ask
        self._silent_until: dict[str, float] = {}
        self._offsets: dict[str, dict[str, int | None]] = {host: dict.fromkeys(names) for host, names in ranks.items()}
        self._under_way: set[str] = set()
        self._answers: queue.SimpleQueue[tuple[str, Answer]] = queue.SimpleQueue()

    def read(self, patience_s: float) -> list[str]:
        """Return new lines as they are shown; those that take longer than `patience_s` come with the next call."""
        now = time.monotonic()
        queried = [
            host for host in self._offsets if host not in self._under_way and now >= self._silent_until.get(host, now)
        ]
        for host in queried:
            self._under_way.add(host)
            threading.Thread(target=self._visit, args=(host, dict(self._offsets[host])), daemon=True).start()
        return self._receive(queried, patience_s)

    def rest(self) -> list[str]:
        """Return the last lines of a job that has ended, also those of slow nodes."""
        return [*self._receive(set(self._under_way), ANSWER_S), *self.read(ANSWER_S)]

    def _visit(self, host: str, offsets: Mapping[str, int | None]) -> None:
        answer: Answer = {}
        try:
            answer = self._ask("follow", {host: {"job_dir": self._job_dir, "offsets": offsets}}, limit_s=ANSWER_S)[host]
        finally:
            self._answers.put((host, answer))

    def _receive(self, awaited: Collection[str], patience_s: float) -> list[str]:
        """Wait for answers of the hosts in `awaited`; return the lines of all answers."""
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
        return [*left, *folded(lines)]


def follow(
    job: Watched,
    forget: Callable[[str], None],
    show: Callable[[str], None],
    lines: Lines | None = None,
    page: Callable[[], None] | None = None,
    interrupted: Callable[[], bool] = lambda: False,
    hint: str = "",
) -> str:
    """Show the progress of a job until it ends; return "", or why nobody answers who knows whether it has ended.

    `lines` are shown about every second, and `page` writes the page every 10 s. `hint` is shown when the job makes no
    progress. Raises LeftError when `interrupted`.
    """
    view = _View(job, show, page, hint)
    stop = threading.Event()
    reader = threading.Thread(target=_show_lines, args=(lines, show, stop), daemon=True)
    if lines:
        reader.start()
    try:
        while True:
            wait_s = view.wait_s()
            found = _poll(job, min(wait_s, PAGE_S) if page else wait_s, interrupted, view.show_silence)
            view.write_page()
            if "state" not in found:
                if view.no_answer():
                    return f"{job.host}: {reason(found) or 'no answer'}"
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
                return ""
    finally:
        stop.set()


class _View:
    """Shows the state of a job, and its silences. Times are those of time.monotonic()."""

    def __init__(self, job: Watched, show: Callable[[str], None], page: Callable[[], None] | None, hint: str) -> None:
        self._job, self._show, self._page, self._hint = job, show, page, hint
        self._begun = self._answered_at = self._reported_at = self._progress_at = time.monotonic()
        self._page_at = self._begun - PAGE_S
        self._wait_s = 0.0
        self._notes: set[str] = set()
        self._line, self._events = "", 0
        self._live = LiveLines()
        # Seconds of silence until it is shown next, how often it was, and whether only the job's monitor is silent.
        self._silence_due_s, self._silences, self._stalled = 0.0, 0, False

    def wait_s(self) -> float:
        """Return the seconds until the next line."""
        self._wait_s = pause(time.monotonic() - self._begun)
        self._silence_due_s = self._silence_due_s or self._wait_s + TELL_S
        return self._wait_s

    def show_silence(self) -> None:
        """Show, at ever longer intervals, that the host or the job's monitor is silent."""
        silent_s = time.monotonic() - (self._reported_at if self._stalled else self._answered_at)
        if silent_s >= self._silence_due_s:
            title, then = self._job.title, self._job.then
            if self._stalled:
                reason = f"answers, but its monitor reported nothing for {silent_s:.0f} s; ranks may still run"
                action = "It may be stopped, or its disk full: look there, or end the job with stop.yml"
            else:
                patience_s = max(self._job.patience_s, self._wait_s + LIMIT_S)
                left_s = max(patience_s - silent_s, self._job.until - time.monotonic(), 0.0)
                reason = f"gave no answer for {silent_s:.0f} s; ranks may still run"
                action = f"It is asked for up to {clock(left_s)} more; {then}"
            self._show(f"  {title} {reason}. {action}")
            self._silence_due_s, self._silences = 3 * self._silence_due_s, self._silences + 1

    def write_page(self) -> None:
        """Write the page, if that is due."""
        if self._page and time.monotonic() - self._page_at >= PAGE_S:
            self._page()
            self._page_at = time.monotonic()

    def no_answer(self) -> bool:
        """Note that there was no answer; return whether patience has ended."""
        if self._stalled:
            self._stalled, self._silence_due_s = False, 0.0
        return time.monotonic() > max(self._job.until, self._answered_at + self._job.patience_s)

    def answered(self, found: Mapping[str, Any]) -> None:
        """Note an answer, and show that a silence has ended."""
        self._answered_at, was_stalled = time.monotonic(), self._stalled
        self._stalled = bool(found.get("stalled"))
        if self._stalled:
            return
        if self._silences:
            again = "reports" if was_stalled else "answers"
            self._show(f"  {self._job.title} {again} again after {self._answered_at - self._reported_at:.0f} s")
        self._reported_at, self._silence_due_s, self._silences = self._answered_at, 0.0, 0

    def show_progress(self, found: Mapping[str, Any]) -> None:
        """Show new events, the line of progress, and a new note."""
        events = found.get("told", ())
        for event in events[self._events :]:
            self._show(f"  {event}")
        self._events = max(self._events, len(events))
        ends = found["state"] not in ("running", "pending")
        now = time.monotonic()
        silent_s = now - self._progress_at
        due = not self._page or found["state"] != "running" or silent_s >= self._wait_s
        # Within ten seconds something comes, although nothing is new.
        equal = without_clock(found["line"]) == without_clock(self._line)
        if equal:
            due = due and not ends and not self._silences and silent_s >= EQUAL_S
        if due and found["line"]:
            for line in self._live.of(found["line"], found.get("lasting", {}), now):
                self._show(f"  {line}")
            self._line, self._progress_at = found["line"], now
        if found.get("note") and found["note"] not in self._notes:
            self._show(f"  {found['note']}")
            self._notes.add(found["note"])
        if found.get("stuck") and self._hint:
            self._show(self._hint)
            self._hint = ""


def _poll(
    job: Watched, wait_s: float, interrupted: Callable[[], bool], meanwhile: Callable[[], None]
) -> Mapping[str, Any]:
    """Poll in another thread, so that an interrupt does not wait for the answer."""
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
