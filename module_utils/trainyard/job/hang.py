# SPDX-License-Identifier: Apache-2.0
"""When a job is hung: no new progress in the log of rank 0 for too long, and how long that is.

A line of progress is a sign of life; before the first one of an attempt any line is. Three limits hold in turn: until
the first progress, after a line that announces a pause (an evaluation, a checkpoint) until the next progress, and
otherwise. `auto` takes the last from the run itself: ten times the longest that one progress was behind another, and
never less than five minutes. Times are seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .shapes import Exact, Whole

# Lines before which training often pauses.
DEFAULT_PAUSE = r"(?i)\b(?:evaluat|validat|checkpoint|saving)"
# What `auto` makes of the longest time between two lines of progress, the least it may be, and after how many.
AUTO_TIMES, AUTO_LEAST_S, AUTO_STEPS = 10.0, 300.0, 5
# What a node tells of the log of rank 0, where that is: lines, lines of progress, whether a pause was announced since.
PROGRESS = Exact({"lines": Whole(1 << 53), "points": Whole(1 << 53), "pausing": bool})
FIRST, PAUSE, STEP = "job_hang_first_step", "job_hang_pause", "job_hang_timeout"

Settings = Mapping[str, Any]


class Watch:
    """The head's view of the progress of a job. Without settings nothing is ever overdue."""

    def __init__(self, settings: Settings | None, now: float) -> None:
        """Take the settings of hang_variables.parse(); `now` is on a monotonic clock, as everywhere here."""
        self.settings = settings
        self._lines, self._points, self._pausing = 0, 0, False
        self.begin(now)

    def begin(self, now: float) -> None:
        """Note that an attempt begins. How long steps take is no longer known: it may go on with other nodes."""
        self._alive_at, self._seen = now, 0
        self._longest_s = 0.0

    def see(self, lines: int, points: int, pausing: bool, now: float) -> None:
        """Take how many lines, and lines of progress, the log of rank 0 has."""
        if points != self._points:
            if self._seen and not self._pausing:
                self._longest_s = max(self._longest_s, now - self._alive_at)
            self._seen += 1
            self._alive_at = now
        elif (lines != self._lines and not self._seen) or (pausing and not self._pausing):
            self._alive_at = now
        self._lines, self._points, self._pausing = lines, points, pausing

    def limit(self) -> tuple[float, str]:
        """Return how long nothing may come now, and the variable that says so."""
        settings = self.settings or {}
        after_s = settings.get("after_s")
        if after_s is None:
            after_s = max(AUTO_LEAST_S, AUTO_TIMES * self._longest_s)
        if not self._seen or (settings.get("after_s") is None and self._seen <= AUTO_STEPS):
            return max(float(settings.get("first_s", 0)), after_s if self._seen else 0.0), FIRST
        if self._pausing:
            return max(float(settings.get("pause_s", 0)), after_s), PAUSE
        return float(after_s), STEP

    def overdue(self, now: float) -> dict[str, Any] | None:
        """Return since when (`after_s`) nothing came and by which variable (`limit`) that is too long, or None."""
        if self.settings is None:
            return None
        limit_s, name = self.limit()
        silent_s = now - self._alive_at
        return {"after_s": round(silent_s), "limit": name} if silent_s > limit_s else None


def text(failure: Mapping[str, Any]) -> str:
    """Say in a few words that a job hung, and which rank is not where the others are."""
    odd = failure.get("reason")
    return f"no new progress for {failure['after_s']} s" + (f": {odd}" if odd else "")


def cause(failure: Mapping[str, Any]) -> list[str]:
    """Say what is known of a job that hung: for how long, and where its ranks were."""
    step = failure.get("step")
    since = f"since step {step:g}" if step is not None else "since its start" if failure["limit"] == FIRST else ""
    named = "" if failure["limit"] == STEP else f"; {failure['limit']}"
    lines = [f"hung: no new progress for {failure['after_s']} s {since}".rstrip() + f" ({STEP}{named})"]
    if failure["limit"] == FIRST and step is None:
        lines.append("where the script prints other lines than are known, job_progress_pattern finds them")
    return [*lines, *failure["groups"], "all stacks are in logs/stacks_*.log"]
