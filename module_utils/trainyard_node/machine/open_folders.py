# SPDX-License-Identifier: Apache-2.0
"""Folders below one in which every user may make some, such as /var/tmp: who made ours, and how it outlives its age."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from . import mounts, private
from .private import Place

EXPECTED = "a folder of the training user or of root in which nobody else may write"


def below(path: Path) -> Iterator[Path]:
    """Yield what lies on the way to `path`, itself included, in a folder in which every user may make something."""
    places = [*reversed(path.parents), path]
    for folder, inside in zip(places, places[1:]):
        with contextlib.suppress(OSError):
            state = os.lstat(folder)
            if stat.S_ISDIR(state.st_mode) and state.st_mode & stat.S_IWOTH:
                yield inside


def of_another(path: Path, uid: int) -> Place | None:
    """Return what another user than `uid` and root has made on the way to `path`, or may write; None where it is safe.

    Without a check, the first user who makes /var/tmp/trainyard-alice has the jobs of alice.
    """
    for inside in below(path):
        try:
            state = os.lstat(inside)
        except OSError:
            return None
        owner = mounts.owner(state)
        if owner not in (0, uid) or not (stat.S_ISLNK(state.st_mode) or _closed(state, uid)):
            return Place(inside, owner, state.st_mode)
    return None


def _closed(state: os.stat_result, uid: int) -> bool:
    return stat.S_ISDIR(state.st_mode) and not private.others_write(state, uid)


def action(place: Place) -> str:
    """Return what to do about a place."""
    return f"see who made {place.path} and remove it, or set trainyard_state to another folder"


@contextlib.contextmanager
def kept(path: Path) -> Iterator[None]:
    """Keep systemd-tmpfiles from removing old files below `path`: it skips a folder with a lock (tmpfiles.d(5))."""
    with contextlib.ExitStack() as locks:
        for inside in below(path):
            with contextlib.suppress(OSError):
                descriptor = os.open(inside, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
                locks.callback(os.close, descriptor)
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield
