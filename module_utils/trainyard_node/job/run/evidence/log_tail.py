# SPDX-License-Identifier: Apache-2.0
"""The progress of a job, read from the logs of its ranks by the monitors of their nodes."""

from __future__ import annotations

import json
import os
import re
import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from copy import copy
from pathlib import Path
from types import MappingProxyType

from .....trainyard.base.shapes import Message
from .....trainyard.job.record.masking import Forms, mask
from .....trainyard.job.run.logs import hang, progress
from .....trainyard.job.run.logs.progress_reader import Reader
from .....trainyard.job.run.measure import checkpoints, goodput
from ....machine.regex_limit import TooLongError, cpu_at_most
from .open_log import OpenLog

MAX_METRICS = 5000
# Bytes that are parsed at once, and how often that is done while a rank runs.
READ_AT_ONCE, OFTEN = 1 << 18, 4
# Bytes that are read at once of logs whose progress does not count, and points of it that are kept.
GLANCE, MAX_KEPT = 1 << 16, 500
# Upper bound for parsing READ_AT_ONCE bytes, in seconds of CPU. The built-in expression takes a quarter of that where
# each line is progress.
PARSE_S = 1.0
# Seconds in which the log of a rank that has ended is read to its end, and then as many in which its last step is
# searched from there. Meanwhile the monitor sends nothing.
DRAIN_S = 2.0
# Seconds in which a folder may change again without another time of its last change.
SAME_TIME_S = 1.0
# Upper bound for the logs whose loss is named.
MAX_NAMED = 3


class Tail:
    """Follows the log of a rank and keeps its metrics."""

    def __init__(
        self, job_dir: Path, log: str, pattern: str, pause: str = "", hidden: Forms = (), writes: bool = True
    ) -> None:
        """Follow job_dir/logs/`log`, which may not exist on this node.

        `pause` finds lines that announce a pause; `hidden` are secrets that no report may show; with `writes` the
        metrics go to metrics.jsonl.
        """
        self._writes = writes
        # Lines for metrics.jsonl.
        self._new: deque[str] = deque(maxlen=MAX_METRICS if writes else MAX_KEPT)
        self._hidden = hidden
        self._name, self._series = log, job_dir / "metrics.jsonl"
        self.log = OpenLog(job_dir / "logs" / log)
        # None once the pattern took too long.
        self._reader: Reader | None = Reader(pattern)
        # The begin of the next line, whether the begin of that is missing, and how many points were kept.
        self._rest, self._torn, self._saved = b"", False, 0
        self.last: progress.Metrics = {}
        self._pause = progress.compile_pattern(pause) if pause else None
        # Lines, lines of progress, and whether a pause was announced since the last progress.
        self.lines, self.points, self.pausing = 0, 0, False
        # Saves that were announced, and whether the last pause is one.
        self._saves, self._saving = 0, False
        # Lines other than progress that came again with other numbers, and the last line that is not empty.
        self.changes, self.last_line = 0, ""
        self._repeated = hang.Changes()
        # Why metrics could not be written, or "".
        self.unwritten = ""
        # Steps at which the loss was not a number.
        self.lost: Message | None = None
        # The pace of the present attempt, and the last line before its first step that names the checkpoint it loads.
        self.pace: goodput.Pace | None = None
        self.resumed = ""

    def report(self) -> Message:
        """Return what the head must know of this log (hang.PROGRESS)."""
        return {
            "lines": self.lines,
            "points": self.points,
            "changes": self.changes,
            "alike": self._repeated.most,
            "pausing": self.pausing,
            "saves": self._saves if self._saving else 0,
            "last": self.last_line,
        }

    def read(self, elapsed_s: float, glance: bool = False) -> None:
        """Read what was written since the last time; at a `glance` only the end of much text."""
        for _ in range(OFTEN):
            behind = self._behind()
            if glance and behind > GLANCE:
                self._skip(behind - GLANCE)
            if not behind:
                return
            self._take(self.log.read(READ_AT_ONCE), elapsed_s)

    def drain(self, elapsed_s: float, complete: bool) -> None:
        """Read the log of a rank that has ended to its end; of very much text only the last step and the end.

        With `complete` its last line is complete, also without the end of a line.
        """
        until = time.monotonic() + DRAIN_S
        while (behind := self._behind()) and time.monotonic() < until:
            self._take(self.log.read(READ_AT_ONCE), elapsed_s)
        if behind > READ_AT_ONCE:
            end = self.log.offset + behind
            for place in filter(None, (self._last_step(end, until + DRAIN_S), end - READ_AT_ONCE)):
                self._skip(place - self.log.offset)
                self._take(self.log.read(READ_AT_ONCE + progress.MAX_LINE), elapsed_s)
        if complete and self._rest:
            self._take(b"\n", elapsed_s)

    def _last_step(self, end: int, until: float) -> int | None:
        """Return the place of the bytes with the last step before `end`; None where none is found in time."""
        for place in range(end - READ_AT_ONCE, self.log.offset, -READ_AT_ONCE):
            # The begin of the first line belongs to what is before it, and may have no end there.
            lines = re.split(rb"[\r\n]", self.log.at(place, READ_AT_ONCE + progress.MAX_LINE))
            if self._reader is None or self._has_step(lines[1:], copy(self._reader)):
                return place
            if time.monotonic() > until:
                print(f"{self._name}: no step in its last {end - place >> 20} MiB: more was not read", flush=True)
                break
        return None

    def _has_step(self, lines: Sequence[bytes], reader: Reader) -> bool:
        try:
            with cpu_at_most(PARSE_S):
                found = (reader.read(line.decode("utf-8", "replace")) for line in lines)
                return any(each and ("step" in each or "step" not in self.last) for each in found)
        except TooLongError:
            return False

    def _behind(self) -> int:
        behind = self.log.behind()
        if self.log.anew:
            self._rest, self._torn, self.log.anew = b"", False, False
        return behind

    def _skip(self, size: int) -> None:
        if size > 0:
            self.log.skip(size)
            self._rest, self._torn = b"", True

    def _take(self, new: bytes, elapsed_s: float) -> None:
        """Take what was read."""
        # A progress bar overwrites itself; it is complete when the next one begins.
        *lines, self._rest = re.split(rb"[\r\n]", self._rest + new)
        if self._torn and lines:
            del lines[0]
            self._torn = False
        # One byte more than a line may have: the end of a longer one must not count as a line.
        self._rest = self._rest[-progress.MAX_LINE - 1 :]
        found = self._parse(lines)
        # Once progress is no longer read, any line is a sign of life.
        self.lines, self.points = self.lines + len(lines), self.points + len(found if self._reader else lines)
        last = next((line for line in reversed(lines) if line.strip()), b"")[: progress.MAX_LINE]
        if last:
            self.last_line = self._shown(last)
        if not found:
            return
        when = {"elapsed_s": round(elapsed_s, 2)}
        # Steps that count through the whole run may be compared over epochs.
        apart = {"epoch": None} if self._reader and self._reader.whole else {}
        for metrics in found:
            self.lost = progress.follow(self.lost, {**metrics, **when})
            self.pace = goodput.follow(self.pace, {**progress.strict(metrics), **apart}, when["elapsed_s"])
            progress.merge(self.last, metrics)
        if self._saved >= MAX_METRICS:
            # A bar that states no loss is drawn ten times a second.
            found = ([metrics for metrics in found if "loss" in metrics] or found)[-1:]
        self._saved += len(found)
        self._new.extend(json.dumps({**progress.strict(metrics), **when}) + "\n" for metrics in found)
        if self._writes:
            self._write("a")

    def begin_attempt(self) -> None:
        """Forget the pace of the last attempt."""
        self.pace, self.resumed = None, ""
        self._repeated.forget()
        if self._reader:
            self._reader.begin()

    def begin_series(self, mode: str = "w") -> None:
        """Write the curve of this log to metrics.jsonl from now on, in place of that of another one."""
        self._writes = True
        self._write(mode)

    def end_series(self) -> None:
        """Leave metrics.jsonl to another log."""
        self._writes = False

    def _write(self, mode: str) -> None:
        # A curve with a gap is better than no monitor.
        try:
            with self._series.open(mode) as series:
                series.writelines(self._new)
        except OSError as error:
            self.unwritten = error.strerror or str(error)
        self._new.clear()

    def _shown(self, line: bytes) -> str:
        """Return a line as a report may quote it."""
        hidden = mask(line, self._hidden).decode("utf-8", "replace")
        return hang.quoted(hidden)

    def _parse(self, lines: Sequence[bytes]) -> list[progress.Metrics]:
        """Read the metrics of lines; an expression that takes too long is not used again."""
        found: list[progress.Metrics] = []
        reader, begins = self._reader, self.pace is None
        if reader is None:
            return found
        try:
            with cpu_at_most(PARSE_S):
                for line in lines:
                    text = line.decode("utf-8", "replace")
                    metrics = reader.read(text)
                    if begins and len(text) <= progress.MAX_LINE and checkpoints.names_start(text):
                        self.resumed = self._shown(line)
                    if metrics:
                        begins = begins and "step" not in metrics
                        found.append(metrics)
                        # An evaluation, a checkpoint or the end follows the last step of an epoch.
                        self.pausing = reader.over
                        self._saving = False
                        self._repeated.forget()
                    elif len(text) <= progress.MAX_LINE:
                        if self._pause and self._pause.search(text):
                            self.pausing, self._saving = True, hang.announces_save(text)
                            self._saves += self._saving
                        self.changes += self._repeated.add(text)
        except TooLongError:
            self._reader = None
            either = " or job_hang_pause_pattern" if self._pause else ""
            print(
                f"job_progress_pattern{either} took {PARSE_S:g} s for {READ_AT_ONCE >> 10} KiB of {self._name} "
                "or less: progress is no longer read. Expected: an expression without nested repetitions "
                "such as (a+)+",
                flush=True,
            )
        return found


class RankTails:
    """Follows the logs of all ranks of this node: most programs print their progress on rank 0, some on another one."""

    def __init__(self, job_dir: Path, node_plan: Message, hidden: Forms) -> None:
        """Take the node plan. Logs are found as they appear, as a launcher may place its ranks itself."""
        self._job_dir, self._world_size = job_dir, int(node_plan["world_size"])
        self._log, self._pattern = str(node_plan["rank_log"]), node_plan["progress_pattern"]
        self._name = re.compile(re.escape(self._log).replace(re.escape("{rank}"), r"(0|[1-9]\d{0,8})"))
        self._pause, self._hidden = str((node_plan.get("hang") or {}).get("pause_pattern", "")), hidden
        # The rank whose progress counts among those of this node.
        self._rank = 0
        self._tails = {0: self._made(0, writes=True)}
        # When the folder of logs, whose names are known, had changed.
        self._listed = 0.0
        # The rank whose progress counted has another number since this attempt.
        self._renumbered = False

    def _made(self, rank: int, writes: bool) -> Tail:
        log = self._log.replace("{rank}", str(rank))
        return Tail(self._job_dir, log, self._pattern, self._pause, self._hidden, writes)

    @property
    def shown(self) -> Tail:
        """Return the log whose progress counts."""
        return self._tails[self._rank]

    @property
    def rank(self) -> int | None:
        """Return the rank whose progress counts; None before any has printed some."""
        return self._rank if self.shown.points else None

    def report(self) -> Message:
        """Return what the head must know of these logs (hang.PROGRESS)."""
        return {**self.shown.report(), "steps": sum(tail.points for tail in self._tails.values())}

    @property
    def unwritten(self) -> str:
        """Return why metrics could not be written, or ""."""
        return next((tail.unwritten for tail in self._tails.values() if tail.unwritten), "")

    @property
    def loss(self) -> str:
        """Return what became of logs that shrank, or were removed or replaced; "" for nothing."""
        lost = [tail.log.loss for tail in self._tails.values() if tail.log.loss]
        more = [f"and {len(lost) - MAX_NAMED} more logs"] if len(lost) > MAX_NAMED else []
        return "; ".join([*lost[:MAX_NAMED], *more])

    def read(self, elapsed_s: float, ended: Mapping[int, bool] = MappingProxyType({}), over: bool = False) -> None:
        """Read what was written since the last time, and choose the rank whose progress counts.

        `ended` has the ranks that have ended, and whether they ended well. Once the job is `over`, all is read.
        """
        for rank in self._appeared():
            self._tails[rank] = self._made(rank, writes=False)
        for rank, tail in self._tails.items():
            # What rank 0 prints is shown where no progress is read.
            tail.read(elapsed_s, glance=rank not in (0, self._rank))
        self._choose()
        if over or self._rank in ended:
            self.shown.drain(elapsed_s, ended.get(self._rank, False))
        for rank in self._tails.keys() & ended.keys():
            self._tails[rank].log.restore()

    def _choose(self) -> None:
        leading = progress.leading({rank: tail.points for rank, tail in self._tails.items()})
        if leading not in (None, self._rank):
            self.shown.end_series()
            self._rank = leading
            self.shown.begin_series("a" if self._renumbered else "w")
            self._renumbered = False

    def _appeared(self) -> list[int]:
        folder = self._job_dir / "logs"
        try:
            changed = folder.stat().st_mtime
            if changed == self._listed:
                return []
            # What changes soon after may not change the time.
            self._listed = changed if changed < time.time() - SAME_TIME_S else 0.0
            names = os.listdir(folder)  # noqa: PTH208
        except OSError:
            return []
        ranks = [int(match[1]) for match in map(self._name.fullmatch, names) if match and match.lastindex]
        return [rank for rank in ranks if rank < self._world_size and rank not in self._tails]

    def begin_attempt(self, own: Collection[int] | None = None) -> None:
        """Forget the pace of the last attempt; `own` are the ranks of this node where these may change."""
        for rank, tail in self._tails.items():
            tail.begin_attempt()
            if own is not None and rank not in own:
                # Another node has this rank now. The curve goes on with a rank of this one.
                tail.points, self._renumbered = 0, self._renumbered or rank == self._rank
