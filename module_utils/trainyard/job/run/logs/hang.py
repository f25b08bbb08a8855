# SPDX-License-Identifier: Apache-2.0
"""Decide when a job hangs: no new progress in the logs of ranks for too long.

A line of progress of any rank is a sign of life, and so are a finished checkpoint and a line that comes again with
other numbers, which may be progress that no rule reads; before the first progress of an attempt any line is. Three
limits apply in turn: until the first progress; after a line that announces a pause (an evaluation, a checkpoint) until
the next progress, or until the announced checkpoint is finished; and otherwise.
`auto` derives the last one from the run, ten times the longest time between two lines of progress and at least a
minute, and ends nothing: after it the stacks are taken and shown once. Times are seconds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ....base.late_pattern import late_pattern
from ....base.shapes import Exact, Text, Whole
from ....base.visible import visible
from . import framework_log, progress_forms

# Lines before which training often pauses. "Saved checkpoint 5" comes after the pause.
DEFAULT_PAUSE = r"(?i)\b(?:evaluat|validat|saving|checkpointing)|^(?!.*\bsaved\b).*\bcheckpoint"
_SAVE = late_pattern(r"(?i)\b(?:sav(?:e|es|ing)|writ(?:e|es|ing)|checkpointing)\b")
# For `auto`: multiple of the longest time between two lines of progress, and its lower bound.
AUTO_TIMES, AUTO_MIN_S = 10.0, 60
# How long lines with other numbers must come without progress until that is said, where no limit is set, in seconds.
UNREAD_S = 300.0
# Upper bounds: the last line of rank 0 in a report, in characters; the places of ranks in a note on a silence.
MAX_LAST, MAX_PLACES = 160, 3
# The report of the node that has the log of rank 0: its number of lines, of lines of progress, and of lines that came
# again with other numbers; whether a pause was announced since the last progress; the last line; how many saves were
# announced, 0 where the last pause is none; the lines of progress of all ranks of the node; and the most lines of one
# form that came with other numbers since the last progress.
_LINES = Whole(1 << 53)
PROGRESS = Exact(
    {
        **dict.fromkeys(("lines", "points", "changes", "?saves", "?steps", "?alike"), _LINES),
        "pausing": bool,
        "last": Text(MAX_LAST),
    }
)
PATTERN_NOTE = "set job_progress_pattern to a regular expression that reads these lines (docs/job-file.md#progress)"
# Kinds of lines that are remembered, and how many lines of one form show that a job prints progress that is not read.
MAX_KINDS, ENOUGH_ALIKE = 64, 10
# The line of progress counts a silence that is longer than this, or than half the limit.
COUNT_AFTER_S = 10.0
FIRST, PAUSE, STEP = "job_hang_first_step", "job_hang_pause", "job_hang_timeout"
# The limit of a job that does not hang.
TIME = "job_timeout"

Settings = Mapping[str, Any]

# Numbers that change without progress: dates, times, durations, memory, percentages, long identifiers.
_CLOCKS_AND_SIZES = late_pattern(
    r"\d{1,4}(?:[:/-]\d{1,4}){1,5}(?:[.,]\d{1,9})?"
    r"|\d{1,9}(?:\.\d{1,9})?\s?(?:%|(?:[mun]?s|secs?|seconds?|m|mins?|minutes?|h|hours?|[kmgt]?i?b|bytes)\b)"
    r"|\d{10,}(?:\.\d{1,9})?|0x[0-9a-f]{1,16}",
    re.IGNORECASE,
)
_NUMBER = late_pattern(r"\d+(?:\.\d+)?")
# Lines that a program repeats while it waits.
_WAITS = late_pattern(r"(?i)wait|retry|retries|attempt|time[d ]?-?out|heartbeat|watchdog")


def announces_save(line: str) -> bool:
    """Return whether a line that announces a pause announces a save, which ends with a finished checkpoint."""
    return bool(_SAVE.search(line))


class Changes:
    """Find lines that come again with other numbers."""

    def __init__(self) -> None:
        """Begin without lines."""
        # The last numbers of each form, and how often they changed since the last progress; the most of these counts.
        self._forms: dict[str, tuple[list[str], int]] = {}
        self.most = 0

    def forget(self) -> None:
        """Count anew, as progress was read."""
        if self.most:
            self._forms, self.most = {form: (numbers, 0) for form, (numbers, _) in self._forms.items()}, 0

    def add(self, line: str) -> bool:
        """Return whether a line like this one came before with other numbers, apart from times and sizes."""
        if _WAITS.search(line) or framework_log.level(line):
            return False
        line = _CLOCKS_AND_SIZES.sub("", line)
        numbers: list[str] = _NUMBER.findall(line)
        if not numbers:
            return False
        kind = _NUMBER.sub("0", line)
        before, count = self._forms.pop(kind, (numbers, 0))
        self._forms[kind] = numbers, count + (before != numbers)
        self.most = max(self.most, self._forms[kind][1])
        if len(self._forms) > MAX_KINDS:
            del self._forms[next(iter(self._forms))]
        return before != numbers


class Watch:
    """The progress of a job. Without settings nothing is ever overdue."""

    def __init__(self, settings: Settings | None, now: float) -> None:
        """Take the settings of hang_variables.parse(); `now` is on a monotonic clock, as everywhere here."""
        self.settings = settings
        self._lines, self._points, self._changes, self._pausing = 0, 0, 0, False
        # Saves that were announced; begin() has how many there were when the last checkpoint was finished.
        self._saves = 0
        self.begin(now)

    def begin(self, now: float) -> None:
        """Note that an attempt begins. Its steps may take another time, on other nodes."""
        self._alive_at, self._progress_at, self._seen = now, now, 0
        # Another rank may count from now on, which has announced as many saves.
        self._longest_s, self._unread, self._finished = 0.0, 0, 0

    def see(
        self, lines: int, points: int, pausing: bool, now: float, changes: int = 0, saves: int = 0, alike: int = 0
    ) -> None:
        """Take how many lines, lines of progress, lines with other numbers, saves and lines of one form there are."""
        self._unread = 0 if points != self._points else alike
        if points != self._points:
            if self._seen and not self._pausing:
                self._longest_s = max(self._longest_s, now - self._alive_at)
            self._seen += 1
            self._alive_at = self._progress_at = now
        elif changes != self._changes or (lines != self._lines and not self._seen) or (pausing and not self._pausing):
            self._alive_at = now
        self._lines, self._points, self._changes, self._pausing = lines, points, changes, pausing
        self._saves = saves

    def finish_save(self, now: float) -> None:
        """Note that a checkpoint is finished: the job lives, and the pause that was announced for it is over."""
        self._alive_at, self._finished = now, self._saves

    def unread(self, now: float) -> bool:
        """Return whether rank 0 prints lines with other numbers, none of which is read as progress, for long enough."""
        limit_s = self._least_s()
        if self._seen:
            limit_s = max(limit_s, self.limit()[0] if self.ends else max(UNREAD_S, self._unusual_s()))
        return self._unread >= ENOUGH_ALIKE and now - self._progress_at > limit_s

    @property
    def ends(self) -> bool:
        """Return whether a job without progress ends; with `auto` it does not."""
        return (self.settings or {}).get("after_s") is not None

    def limit(self) -> tuple[float, str]:
        """Return how long a job may now be without progress, and the variable that sets this."""
        settings = self.settings or {}
        after_s = float(settings["after_s"]) if self.ends else self._unusual_s()
        if not self._seen:
            return float(settings.get("first_s", 0)), FIRST
        if self._pausing and not 0 < self._saves == self._finished:
            return max(float(settings.get("pause_s", 0)), after_s), PAUSE
        return after_s, STEP

    def _least_s(self) -> float:
        return float((self.settings or {}).get("least_s", AUTO_MIN_S))

    def _unusual_s(self) -> float:
        return max(self._least_s(), AUTO_TIMES * self._longest_s)

    def overdue(self, now: float, time_up: bool = False) -> dict[str, Any] | None:
        """Return for how long nothing came (`after_s`) and the variable whose limit that exceeds (`limit`), or None.

        A job whose time is up is overdue in any case.
        """
        silent_s, (limit_s, name) = now - self._alive_at, self.limit()
        if time_up:
            return {"after_s": round(silent_s), "limit": TIME}
        return {"after_s": round(silent_s), "limit": name} if self.settings and silent_s > limit_s else None

    def silence(self, now: float) -> dict[str, Any] | None:
        """Return a silence that is unusually long: how long (`for_s`), and whether in steps.

        `limit_s` is when it ends the job, None where nothing does.
        """
        for_s, (limit_s, name) = now - self._alive_at, self.limit()
        if self.ends:
            usual_s = min(max(COUNT_AFTER_S, 2 * self._longest_s), limit_s / 2)
        else:
            usual_s = limit_s if name == PAUSE else self._unusual_s()
        if not self.settings or for_s < usual_s:
            return None
        return {"for_s": round(for_s), "limit_s": round(limit_s) if self.ends else None, "steps": bool(self._seen)}


def silence_text(silence: Mapping[str, Any], restarts: bool, taking_stacks: bool) -> str:
    """Return a silence in words: `no new step for 14 s, ends at 20 s`; `no new step for 1:10` where nothing ends it."""
    what, for_s = "no new step" if silence["steps"] else "no step yet, no new line", silence["for_s"]
    if taking_stacks:
        return f"{what} for {for_s} s, taking the stacks of all ranks"
    if silence["limit_s"] is None:
        return f"{what} for {for_s // 60}:{for_s % 60:02d}"
    return f"{what} for {for_s} s, {'restarts' if restarts else 'ends'} at {silence['limit_s']} s"


def noted_text(noted: Mapping[str, Any]) -> str:
    """Return in one line where the ranks are in a silence that ends nothing."""
    places, more = noted["groups"][:MAX_PLACES], len(noted["groups"]) - MAX_PLACES
    places += [f"{more} more on the page"] if more > 0 else []
    return f"no new progress for {noted['after_s']} s ({STEP}: auto, so the job goes on): {'; '.join(places)}"


def quoted(line: str) -> str:
    """Return a line of a log as a report may quote it."""
    return visible(framework_log.short(progress_forms.clean(line).strip()))[:MAX_LAST]


def last_printed(log: str) -> str:
    """Return in words the last line of rank 0's log, for a job of a scheduler that shows no progress; "" for none."""
    last = next((line for line in reversed(log.splitlines()) if line.strip()), "")
    return printing_text(quoted(last), unread=False) if last else ""


def printing_text(last: str, unread: bool) -> str:
    """Return the last output of rank 0 while no progress is read."""
    return f"{'printing, but no progress is read' if unread else 'rank 0 printed'}: {last}"


def cause(failure: Mapping[str, Any]) -> list[str]:
    """Return since when a job that hung, or whose time was up, made no progress, and where its ranks were."""
    step, limit = failure.get("step"), failure["limit"]
    since = f" since step {step:g}" if step is not None else " since its start" if limit == FIRST else ""
    if limit == TIME:
        lines = [f"then no new progress had come for {failure['after_s']} s{since}"]
    else:
        named = STEP if limit == STEP else f"{STEP}; {limit}"
        lines = [f"hung: no new progress for {failure['after_s']} s{since} ({named})"]
    if limit == FIRST and step is None:
        lines.append("where the script prints other lines than are known, job_progress_pattern finds them")
    return [*lines, *failure["groups"], "all stacks are in logs/stacks_*.log"]
