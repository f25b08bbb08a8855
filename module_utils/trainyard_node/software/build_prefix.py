# SPDX-License-Identifier: Apache-2.0
"""The prefix of what is built on this machine or copied to it, and the room for it. Sizes in MB (10^6 bytes)."""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...trainyard.base.shapes import misfit
from ...trainyard.base.state_format import loads
from ..machine import install_lock

RECORD = ".trainyard.json"
# The part of a record that is read beside its comparison.
_RECORD = {"?make": [str]}


def os_release() -> dict[str, str]:
    """Return the fields of /etc/os-release, none without that file."""
    file = Path("/etc/os-release")
    pairs = (line.partition("=") for line in (file.read_text() if file.is_file() else "").splitlines())
    return {key: value.strip("\"'") for key, _, value in pairs}


def system() -> str:
    """Name the operating system, its release and the hardware; a build serves all nodes that are equal in it."""
    found = os_release()
    return f"{found.get('ID', 'linux')} {found.get('VERSION_ID', '')} {platform.machine()}"


def free_bytes(path: Path) -> int:
    """Return the free bytes where a path is or would be."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free


def read_record(prefix: Path) -> dict[str, Any] | None:
    """Return what the content of the prefix was built from; None where no role of this project built it."""
    try:
        record = loads((prefix / RECORD).read_bytes())
    except (OSError, ValueError):
        return None
    return record if not misfit(record, _RECORD) else None


def read_place(prefix: Path) -> dict[str, Any]:
    """Return platform, cpus, free_mb, record and prefix_kind (none, built, foreign), as the plans take them."""
    record = read_record(prefix)
    return {
        "platform": system(),
        "cpus": len(os.sched_getaffinity(0)),
        "free_mb": free_bytes(prefix) // 10**6,
        "record": record,
        "prefix_kind": "built" if record else "foreign" if os.path.lexists(prefix) else "none",
    }


def put(new: Path, prefix: Path) -> bool:
    """Give a finished build its final place; return false where another host that shares it has put the same there.

    There is the old build or the new one, never a half. Raises InstallLockError and OSError.
    """
    with install_lock.held(prefix):
        if read_record(prefix) == read_record(new):
            shutil.rmtree(new)
            return False
        with _beside(prefix) as scratch:
            try:
                new.rename(scratch / "new")
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                shutil.copytree(new, scratch / "new", symlinks=True)
                shutil.rmtree(new)
            if os.path.lexists(prefix):
                prefix.rename(scratch / "old")
            (scratch / "new").rename(prefix)
    return True


def take_away(prefix: Path) -> bool:
    """Remove a build; return whether it was there. Raises InstallLockError and OSError."""
    if not os.path.lexists(prefix):
        return False
    with install_lock.held(prefix), _beside(prefix) as scratch:
        if not os.path.lexists(prefix):
            return False
        prefix.rename(scratch / "old")
    return True


@contextlib.contextmanager
def _beside(prefix: Path) -> Iterator[Path]:
    """Make a folder beside the prefix, with what an interrupted run left removed; remove it at the end."""
    start = f".{prefix.name}.moving-"
    for left in prefix.parent.glob(f"{glob.escape(start)}*"):
        shutil.rmtree(left)
    scratch = Path(tempfile.mkdtemp(prefix=start, dir=prefix.parent))
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch)
