# SPDX-License-Identifier: Apache-2.0
"""What files and folders a node has, read so that the controller can tell which differ from the wanted ones. Read-only.

The other half is trainyard/software/files.py.
"""

from __future__ import annotations

import grp
import hashlib
import os
import pwd
import stat
from collections.abc import Iterable
from pathlib import Path

from .tree import open_file


def read_files(paths: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return the state of each path: kind (file, folder, other), owner and uid, group and gid, mode, sha256 of a file.

    All are texts; the mode is four octal digits. Missing and unreadable paths are omitted. Links are followed.
    """
    found = {}
    for path in paths:
        try:
            state = os.stat(path)  # noqa: PTH116 (Python 3.9: half the time)
            regular = stat.S_ISREG(state.st_mode)
            content = b""
            if regular:
                with open_file(Path(path)) as file:
                    content = file.read()
            found[path] = {
                "kind": "file" if regular else "folder" if stat.S_ISDIR(state.st_mode) else "other",
                "uid": str(state.st_uid),
                "owner": _user(state.st_uid),
                "gid": str(state.st_gid),
                "group": _group(state.st_gid),
                "mode": f"{stat.S_IMODE(state.st_mode):04o}",
                "sha256": hashlib.sha256(content).hexdigest() if regular else "",
            }
        except OSError:
            continue
    return found


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return ""
