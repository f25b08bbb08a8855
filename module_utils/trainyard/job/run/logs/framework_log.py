# SPDX-License-Identifier: Apache-2.0
"""Recognize MindSpore's own log among the lines of a program: `[WARNING] ME(7,8,python):time [mindspore/...] text`.

It prints its warnings, and some lines of the level INFO, whatever GLOG_v asks for. Lines that the program logs by
MindSpore's functions name another file, and are the program's.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....base.late_pattern import late_pattern

_LINE = late_pattern(
    r"^\[(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL)\] [A-Z_]{1,32}\([^()]{1,100}\):[\d:.-]{10,40} "
    r"\[mindspore/[^\]]{1,400}\](?: [^\s\]]{1,100}\])? ?(?P<text>.*)"
)


def level(line: str) -> str:
    """Return the level of a line of MindSpore's own log, "" for other lines."""
    match = _LINE.match(line)
    return match["level"] if match else ""


def short(line: str) -> str:
    """Return a line without process, time and source: `WARNING: Topology build timed out`; others as they are."""
    match = _LINE.match(line)
    return f"{match['level']}: {match['text']}" if match else line


def without(lines: Sequence[str], *levels: str) -> list[str]:
    """Return lines without those of MindSpore's own log that have one of these levels; all, if none would be left."""
    return [line for line in lines if level(line) not in levels] or list(lines)
