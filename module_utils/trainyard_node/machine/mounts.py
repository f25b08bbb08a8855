# SPDX-License-Identifier: Apache-2.0
"""Tell who mounted the file systems of this machine.

FUSE lets users mount over folders of theirs. Such a file system says itself whose its files are, and may say root's,
but the kernel notes who mounted it (proc_pid_mountinfo(5)).
"""

from __future__ import annotations

import os
import re
from pathlib import Path

TABLE = Path("/proc/self/mountinfo")
_OF_USER = re.compile(
    r"^\d+ \d+ (?P<major>\d+):(?P<minor>\d+) .* - fuse\S* \S+ (?:\S*,)?user_id=(?P<user>[1-9]\d*)\b", re.MULTILINE
)


def users() -> dict[int, int]:
    """Return the users who have mounted file systems, by device as in `st_dev`, but for root."""
    text = TABLE.read_text(encoding="utf-8", errors="replace")
    return {os.makedev(int(each["major"]), int(each["minor"])): int(each["user"]) for each in _OF_USER.finditer(text)}


def owner(state: os.stat_result) -> int:
    """Return whose a file is: of a user's own file system, everything is that user's."""
    return users().get(state.st_dev, state.st_uid)
