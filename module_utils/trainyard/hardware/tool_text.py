# SPDX-License-Identifier: Apache-2.0
"""Output of tools as people save it: with a byte order mark, line ends of other systems, terminal colors."""

from __future__ import annotations

import re

from ..base.visible import ESCAPE_SEQUENCE

# Upper bound for a line that a tool prints, in characters: the time of a pattern may grow with the square of a line.
_MAX_LINE = 1000
_LINE_END = re.compile(r"\r\n|\n|\r")


def lines_of(text: str) -> list[str]:
    """Return the lines of an output, without escape sequences."""
    lines = _LINE_END.split(ESCAPE_SEQUENCE.sub("", text.removeprefix("\ufeff")))
    return [line[:_MAX_LINE].rstrip() for line in lines]


def number(text: str) -> int | None:
    """Return a number of ASCII digits; None for anything else, as no tool prints the digits of other scripts."""
    return int(text) if text.isascii() and text.isdecimal() else None


def excerpt(text: str) -> str:
    """Return the first lines of a tool's output as one line for a message."""
    lines = [line.strip() for line in lines_of(text) if line.strip()]
    return " ".join(lines[:3])[:300] if lines else "(it printed nothing)"
