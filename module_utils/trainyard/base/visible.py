# SPDX-License-Identifier: Apache-2.0
"""Show texts of machines and jobs on a terminal; control characters appear as escapes such as \\x1b.

Ranks and nodes choose logs, names and messages. Raw, they could overwrite earlier output, write the clipboard (OSC 52),
or change the order in which text is read (Unicode Technical Report 36). Files keep every byte; pages escape themselves.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# All controls of C0 but tab and line feed, DEL, C1; marks of direction, breaks that only some programs see, invisible
# characters that only tags use; half of a surrogate pair, which no encoding has.
_STEERS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
)
# Upper bound for a node's text on one line, in characters.
MAX_LINE = 4000
# The colors that Ansible itself prints.
_COLOR = re.compile(r"(\x1b\[(?:0|[01];3[0-7])m)")
# Colors, movements of the cursor, titles of windows, which tools write for a terminal.
ESCAPE_SEQUENCE = re.compile(r"\x1b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")


def visible(text: str) -> str:
    """Show what would steer a terminal; line ends of other systems are line ends."""
    return _STEERS.sub(_escape, text.replace("\r\n", "\n"))


def one_line(text: str, most: int = MAX_LINE) -> str:
    """Return a text on one line, cut where it is long, so that its author cannot add lines to a report."""
    # Nearly all texts; thousands of nodes send hundreds each.
    if text.isascii() and text.isprintable() and len(text) <= most:
        return str(text)
    shown = text if len(text) <= most else f"{text[:most]} ..."
    lines = shown.splitlines()
    return visible(shown if len(lines) < 2 and lines == [shown] else " ".join(filter(None, map(str.strip, lines))))


def visible_but_colours(text: str) -> str:
    """Show what would steer a terminal, but leave the colors that Ansible uses."""
    return "".join(part if _COLOR.fullmatch(part) else visible(part) for part in _COLOR.split(text))


def as_overwritten(line: str) -> str:
    """Return the end of a line that overwrites itself, as progress bars do; `...` replaces what was there."""
    before, found, last = line.rstrip("\r").rpartition("\r")
    return f"... {last}" if found and before else last


def type_name(value: Any) -> str:
    """Return the name of a value's type; Ansible's own types have that of what they hold."""
    name = type(value).__name__
    own = name.removeprefix("_AnsibleTagged")
    return name if own == name else own.lower()


def unwritable(value: Any) -> str:
    """Describe what of a value no file can hold: text that is no UTF-8, a number of hundreds of digits; else ""."""
    if isinstance(value, str):
        return f"{ascii(value)[:100]}, which is no UTF-8" if re.search("[\ud800-\udfff]", value) else ""
    if isinstance(value, Mapping):
        value = [*value, *value.values()]
    if isinstance(value, (list, tuple)):
        return next(filter(None, map(unwritable, value)), "")
    return "a number of more than 300 digits" if isinstance(value, int) and abs(value) > 10**300 else ""


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
