# SPDX-License-Identifier: Apache-2.0
"""Follow `pip install` by its output, and describe how far it or another installation is.

Sizes are bytes, times are seconds. pip names each file with its size when its download begins, and all packages when
it unpacks them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..base.shapes import DURATION, Text, Whole
from .installed import share_text

_UNITS = {"bytes": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9}
_FILE = re.compile(
    r"\s*(?:Downloading|Using cached) (?P<file>\S+)(?: \((?P<size>[\d.]+) (?P<unit>bytes|kB|MB|GB)\))?\s*$"
)
_LOCAL = re.compile(r"\s*Processing (?P<file>/\S+)")
# The phases of an installation by pip, of one by apt, and of a build, each in its order. Files of an image are
# downloaded and unpacked, too.
DOWNLOAD, UNPACK, COMPILE, UNPACK_PACKAGES, SET_UP, CONFIGURE, BUILD, INSTALL = range(8)
# The record of a node (program_progress.py). `done` and `total` are bytes, or what _WORDS counts.
INSTALLING = {
    "phase": Whole(INSTALL),
    "file": Text(250),
    "seconds": DURATION,
    **dict.fromkeys(("number", "done", "total"), Whole(1 << 50)),
    # The host that installs into a folder that it shares with this one, which waits.
    "?holder": Text(253),
}
# The record of a step that has not begun.
START: dict[str, Any] = {"phase": DOWNLOAD, "file": "", "seconds": 0.0, "number": 0, "done": 0, "total": 0}
# By phase: what is done, and what is counted; "" for bytes.
_WORDS = {
    DOWNLOAD: ("", ""),
    UNPACK: ("unpacking", ""),
    COMPILE: ("compiling", "module"),
    UNPACK_PACKAGES: ("unpacking", "package"),
    SET_UP: ("setting up", "package"),
    CONFIGURE: ("configuring", "check"),
    BUILD: ("compiling", "file"),
    INSTALL: ("installing", "file"),
}


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

    Others are `setting up fish: 12 of 50 packages, 2/s, 19 s left` and `configuring 812 checks, 9/s`.

    `record`: phase, file, number (0: the only one), and of the present step `done`, `total` (0: not known) and
    `seconds`.
    """
    if holder := record.get("holder"):
        far = text({**record, "holder": ""})
        return f"waits for {holder}, which installs it" + (f" ({far})" if far else "")
    word, unit = _WORDS[record["phase"]]
    name = record["file"]
    # A wheel is known by its name and version.
    name = "-".join(name.split("-")[:2]) if name.endswith(".whl") else name
    if record["phase"] == DOWNLOAD and record["number"] and name:
        word = f"download {record['number']},"
    what = f"{word} {name}".strip()
    if not what:
        return ""
    share = share_text(record["done"], record["total"], record["seconds"], unit)
    return f"{what} {share}" if unit and not name else f"{what}: {share}"


def slowest(records: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the host that is least far, one that waits for another only if all wait."""

    def far(host: str) -> tuple[float, ...]:
        record = records[host]
        return bool(record.get("holder")), record["phase"], record["number"], record["done"]

    return min(records, key=far, default="")
