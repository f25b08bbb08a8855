# SPDX-License-Identifier: Apache-2.0
"""Read the state of files and folders; trainyard/software/file_differences.py compares it with the requested state."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from .tree import open_file
from .users import group_name, user_name


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
                "owner": user_name(state.st_uid),
                "gid": str(state.st_gid),
                "group": group_name(state.st_gid),
                "mode": f"{stat.S_IMODE(state.st_mode):04o}",
                "sha256": hashlib.sha256(content).hexdigest() if regular else "",
            }
        except OSError:
            continue
    return found


def files_below(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the name and the state of each file below a folder; others may come and go meanwhile."""
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                yield name, os.lstat(f"{parent}/{name}")
            except OSError:
                continue


def newest_own(folders: Iterable[Path]) -> Path | None:
    """Return the folder of this user that has changed last: others may make such folders in /var/tmp, too."""
    found = [(state.st_mtime, folder) for folder in folders if (state := folder.lstat()).st_uid == os.geteuid()]
    return max(found)[1] if found else None
