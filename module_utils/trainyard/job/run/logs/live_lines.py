# SPDX-License-Identifier: Apache-2.0
"""Decide what a watcher shows of the line of a job, so that nothing is repeated in the same words. Times are seconds.

A line of progress has figures that move. Remarks that last, such as a slow rank, are shown when they begin, once a
minute, and when they end. A line without figures says the second time for how long it has been so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from .progress import clock

# The interval at which a remark that lasts is repeated.
AGAIN_S = 60.0
# The lines that end a remark.
_ENDS = {"apart": "the nodes no longer train each for itself", "slow": "no rank is slow any more"}
_CLOCK = re.compile(r"^[\d:]+ +")


def without_clock(line: str) -> str:
    """Return a line of progress without its time: lines that differ in that alone tell nothing new."""
    return _CLOCK.sub("", line)


class LiveLines:
    """The lines of one job that were shown."""

    def __init__(self) -> None:
        """Start with nothing shown."""
        # By the name of a remark: its text, and when it was shown last.
        self._remarks: dict[str, tuple[str, float]] = {}
        self._text, self._since = "", 0.0

    def of(self, line: str, remarks: Mapping[str, str], now: float) -> list[str]:
        """Return what is shown of a line; `remarks` are those of its parts that last, by their names."""
        if not _CLOCK.match(line):
            return [self._without_figures(line, now)]
        self._text = ""
        ended = [name for name in self._remarks if name not in remarks]
        for name in ended:
            del self._remarks[name]
        for name, text in remarks.items():
            before, shown = self._remarks.get(name, ("", now))
            if text == before and now - shown < AGAIN_S:
                line = line.replace(f"   {text}", "", 1)
            else:
                self._remarks[name] = text, now
        return [*filter(None, (_ENDS.get(name) for name in ended)), line]

    def _without_figures(self, line: str, now: float) -> str:
        if line != self._text:
            self._text, self._since = line, now
            return line
        return f"{clock(now - self._since)}   still: {line.partition(';')[0]}"
