# SPDX-License-Identifier: Apache-2.0
"""Follow `pip install` by its output, and describe how far it or a download is. Sizes are bytes, times are seconds.

pip names each file with its size when its download begins, and all packages when it unpacks them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..findings.shapes import DURATION, Text, Whole
from .installed import share_text

_UNITS = {"bytes": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9}
_FILE = re.compile(
    r"\s*(?:Downloading|Using cached) (?P<file>\S+)(?: \((?P<size>[\d.]+) (?P<unit>bytes|kB|MB|GB)\))?\s*$"
)
_LOCAL = re.compile(r"\s*Processing (?P<file>/\S+)")
# The phases of an installation, in their order.
DOWNLOAD, UNPACK, COMPILE = range(3)
# The record of a node (environment_progress.py).
RECORD = {
    "phase": Whole(COMPILE),
    "file": Text(250),
    "seconds": DURATION,
    **dict.fromkeys(("number", "done", "total"), Whole(1 << 50)),
    # The host that installs into a folder that it shares with this one, which waits.
    "?holder": Text(253),
}
# The record of a step that has not begun.
START: dict[str, Any] = {"phase": DOWNLOAD, "file": "", "seconds": 0.0, "number": 0, "done": 0, "total": 0}
_WORDS = {UNPACK: "unpacking", COMPILE: "compiling"}


class PipOutput:
    """What pip does, by the lines that it has printed: the `phase`, and the `file` that it downloads, of `size`."""

    def __init__(self) -> None:
        """Start before the first line."""
        self.phase, self.file, self.size, self.number = DOWNLOAD, "", 0, 0
        # Wheels that are on this machine.
        self.local: list[str] = []

    def read(self, line: str) -> bool:
        """Take the next line; return whether something new begins."""
        found = _FILE.match(line)
        if found and not found["file"].endswith(".metadata"):
            self.phase, self.file = DOWNLOAD, found["file"].rpartition("/")[2].partition("#")[0]
            self.size = int(float(found["size"]) * _UNITS[found["unit"]]) if found["size"] else 0
            self.number += 1
            return True
        if found := _LOCAL.match(line):
            self.local.append(found["file"])
            self.number += 1
        elif line.startswith("Installing collected packages:"):
            self.phase, self.file, self.size = UNPACK, "", 0
            return True
        return False


def text(record: Mapping[str, Any]) -> str:
    """Return how far an installation is: `torch-2.9.0: 212 MiB of 812 MiB, 11 MiB/s, 57 s left`; "" at its begin.

    `record`: phase, file, number (0: the only one), and of the present step `done`, `total` (0: not known) and
    `seconds`.
    """
    if holder := record.get("holder"):
        far = text({**record, "holder": ""})
        return f"waits for {holder}, which installs it" + (f" ({far})" if far else "")
    done, total, seconds = record["done"], record["total"], record["seconds"]
    what = "-".join(record["file"].split("-")[:2]) or _WORDS.get(record["phase"], "")
    if record["phase"] == DOWNLOAD and record["number"]:
        what = f"download {record['number']}, {what}" if what else ""
    if not what:
        return ""
    if record["phase"] == COMPILE:
        return f"{what} {min(done, total)} of {total} modules" if total else what
    return f"{what}: {share_text(done, total, seconds)}"


def slowest(records: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the host that is least far, one that waits for another only if all wait."""

    def far(host: str) -> tuple[float, ...]:
        record = records[host]
        return bool(record.get("holder")), record["phase"], record["number"], record["done"]

    return min(records, key=far, default="")
