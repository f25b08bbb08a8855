# SPDX-License-Identifier: Apache-2.0
"""Let one process at a time install into a folder that several hosts may share; the others wait, and say for whom.

The lock is the kernel's (fcntl(2), F_SETLK), on a file beside the folder: it ends with its process, however that dies,
and a server of NFS has it for all its clients. Not flock(2): some shared file systems keep that on one host. The file
stays, as a process that waits for a removed file would meet none that waits for its successor.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import platform
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ...trainyard.base.shapes import TIME, Text, Whole, misfit
from . import mounts
from .as_user import JobError
from .private import weak_place

HOST = platform.node()[:253]
# How long to wait for another process, and how often to try, in seconds: 5 GB take more than an hour by a slow network.
LIMIT_S, EVERY_S = 3 * 3600.0, 1.0
# Upper bound of the file, in bytes.
_MAX_BYTES = 4096
_HOLDER = {"host": Text(253), "pid": Whole(1 << 31), "since": TIME, "mark": Text(64)}
# The locks of this process, which would lose one by closing its file a second time.
_OWN: set[Path] = set()
# Errors of the kernel for a file that another process has locked.
_TAKEN = (errno.EACCES, errno.EAGAIN)


class InstallLockError(JobError):
    """The lock cannot be had; the text says what was found and what to do."""


class Holder(NamedTuple):
    """The process that has the lock, or had it and left a mark."""

    host: str
    pid: int
    since: float
    mark: str = ""

    def __str__(self) -> str:
        """Name it with the time from which it has the lock, in UTC."""
        return (
            f"{self.host} (process {self.pid}, since {time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(self.since))} UTC)"
        )


@dataclass
class Turn:
    """The lock as it was obtained: the holder before, if that left a mark, and the folders that were made for it."""

    before: Holder | None
    made: list[Path]
    # Stays in the file for those who come next; empty for the mark that is there.
    mark: str = ""

    def end(self) -> Holder | None:
        """Return what stays in the file."""
        if self.mark:
            return Holder(HOST, 0, time.time(), self.mark)
        return self.before if self.before and self.before.mark else None


def path_of(target: Path) -> Path:
    """Return the lock file of a folder."""
    return target.parent / f".{target.name}.lock"


@contextlib.contextmanager
def held(target: Path, limit_s: float = LIMIT_S) -> Iterator[Turn]:
    """Hold the lock of a folder, which need not exist; what others did there before is seen from then on.

    Raises InstallLockError.
    """
    made = [parent for parent in target.parents if not parent.exists()]
    until = time.monotonic() + limit_s
    while True:
        descriptor = _open(target)
        try:
            _acquire(descriptor, target, until)
            # The folder above may have been removed meanwhile, with the file.
            if not _is_current(descriptor, path_of(target)) and time.monotonic() < until:
                continue
            turn = Turn(_content(descriptor), made)
            _write(descriptor, Holder(HOST, os.getpid(), time.time()))
            _refresh(target)
            _OWN.add(target)
            try:
                yield turn
            finally:
                _OWN.discard(target)
                _write(descriptor, turn.end())
            return
        finally:
            os.close(descriptor)


def holder(target: Path) -> Holder | None:
    """Return the other process that has the lock of a folder, None where there is none or it is not known."""
    if target in _OWN:
        return None
    try:
        descriptor = os.open(path_of(target), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return _content(descriptor) if error.errno in _TAKEN else None
    finally:
        os.close(descriptor)
    return None


def _open(target: Path) -> int:
    """Open the lock file, where nobody else could put or keep one."""
    path = path_of(target)
    try:
        for parent in reversed([each for each in target.parents if not each.exists()]):
            with contextlib.suppress(FileExistsError):
                parent.mkdir()
                parent.chmod(0o755)  # readable for all, whatever the umask is
        # Others may add names to a sticky folder, and not exchange root's.
        if os.geteuid() == 0 and (place := weak_place(target.parent)):
            raise InstallLockError(
                f"others can exchange {place}, and root installs nothing there; give it to root, or choose another one"
            )
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    except OSError as error:
        found = f"{path}, by which hosts that share the folder take turns, cannot be opened: {error.strerror}"
        raise InstallLockError(f"{found}; see to whom it and its folder belong") from None
    state = os.fstat(descriptor)
    if stat.S_ISREG(state.st_mode) and state.st_nlink < 2 and mounts.owner(state) == os.geteuid():
        return descriptor
    os.close(descriptor)
    found = f"{path} is {stat.filemode(state.st_mode)} of uid {mounts.owner(state)} with {state.st_nlink} names"
    raise InstallLockError(f"{found}; expected a file of uid {os.geteuid()} alone: see who put it there, and remove it")


def _acquire(descriptor: int, target: Path, until: float) -> None:
    while True:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as error:
            if error.errno == errno.ESTALE:
                return  # Its server has it no more.
            if error.errno not in _TAKEN:
                raise InstallLockError(
                    f"the file system of {target.parent} has no locks ({error.strerror}), so hosts that share it would "
                    "install there at once; mount it with locks (Lustre: flock), or choose a folder on another one"
                ) from None
        if time.monotonic() >= until:
            other = holder(target)
            raise InstallLockError(
                f"{other or 'another process'} installs {target} and did not end in time; see what it does there, end "
                "it, and run this again"
            )
        time.sleep(EVERY_S)


def _is_current(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except OSError:
        return False


def _content(descriptor: int) -> Holder | None:
    """Return what the file says, None where that has not the shape of a holder."""
    try:
        found = json.loads(os.pread(descriptor, _MAX_BYTES, 0))
    except (OSError, ValueError, RecursionError):
        return None
    if misfit(found, _HOLDER) or not found["host"].isprintable():
        return None
    return Holder(**found)


def _write(descriptor: int, content: Holder | None) -> None:
    """Write who has the lock. On a full disk nobody learns that, and the lock holds all the same."""
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        if content:
            os.pwrite(descriptor, json.dumps(content._asdict()).encode(), 0)
        os.fsync(descriptor)


def _refresh(target: Path) -> None:
    """Have NFS ask its server which names there are: it keeps them for a minute, but not where a folder is opened."""
    for folder in (target.parent, target):
        with contextlib.suppress(OSError):
            os.close(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC))
