# SPDX-License-Identifier: Apache-2.0
"""Folders and files that only their owner, mostly root, can change.

What root runs, unpacks or trusts must never have been in another user's reach. So a folder is made anew (mkdir(2) fails
where anything exists) below folders that only root writes, and a file is checked through one descriptor.
"""

from __future__ import annotations

import grp
import hashlib
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

from . import mounts
from .users import user_name

# Links on the way to a file, as many as the kernel follows (path_resolution(7)).
_MAX_LINKS = 40
# Groups below this number are the system's, such as staff, whom Debian lets write /usr/local (Debian Policy 9.2.2).
_FIRST_USERS_GROUP = 100


class PrivateError(Exception):
    """A file or folder that others could have put there; the text has the expectation and the action."""


class Place(NamedTuple):
    """A file, folder or link, with what decides who can change it."""

    path: Path
    uid: int
    mode: int

    def __str__(self) -> str:
        """Name it with its mode and its owner."""
        return f"{self.path} ({stat.filemode(self.mode)}, of {user_name(self.uid) or f'uid {self.uid}'})"


def weak_place(path: Path, besides: int = 0) -> Place | None:
    """Return the first folder, link or file on the way to `path`, itself included, that others than root can exchange.

    `besides` is a user who may own them as well. Raises OSError where there is nothing.
    """
    here, parts, links, mounted_by = Path("/"), list(path.parts[1:]), 0, mounts.users()
    while True:
        state = os.lstat(here)
        # In a sticky folder others cannot exchange what is not theirs.
        sticky = stat.S_ISDIR(state.st_mode) and state.st_mode & stat.S_ISVTX
        owner = mounted_by.get(state.st_dev, state.st_uid)
        if owner not in (0, besides) or (others_write(state, besides) and not sticky):
            return Place(here, owner, state.st_mode)
        if not parts:
            return None
        entry = here / parts.pop(0)
        if entry.is_symlink():
            links, state = links + 1, os.lstat(entry)
            if links > _MAX_LINKS or state.st_uid not in (0, besides):
                return Place(entry, state.st_uid, state.st_mode)
            target = entry.readlink()
            here = Path("/") if target.is_absolute() else here
            parts = [*(part for part in target.parts if part != "/"), *parts]
        else:
            here = here.parent if entry.name == ".." else entry


def others_write(state: os.stat_result, besides: int = 0) -> bool:
    """Return whether others than root and the user `besides` may write a file or folder."""
    by_group = state.st_mode & stat.S_IWGRP and state.st_gid >= _FIRST_USERS_GROUP
    return bool(state.st_mode & stat.S_IWOTH or (by_group and not _is_own_group(state.st_gid, besides)))


def _is_own_group(gid: int, uid: int) -> bool:
    """Return whether a group is a user's own: with such ones Ubuntu has them make folders that the group writes."""
    try:
        group = grp.getgrgid(gid)
    except KeyError:
        return False
    return bool(uid) and group.gr_name == user_name(uid) and not set(group.gr_mem) - {group.gr_name}


def only_root_changes(path: Path, besides: int = 0) -> bool:
    """Tell whether only root can exchange this folder: all folders and links on the way to it belong to root.

    `besides` is a user who may own them as well.
    """
    return weak_place(path, besides) is None and path.is_dir()


def expect_safe(folder: Path) -> None:
    """Raise PrivateError where others could exchange `folder` or what is in it.

    Nothing is checked for users other than root, who have no rights to lose.
    """
    # In a sticky folder others cannot change existing files of root, but they can create new ones.
    if os.geteuid() == 0 and (not only_root_changes(folder) or folder.stat().st_mode & stat.S_IWOTH):
        raise PrivateError(
            f"{folder}, or a folder or link on the way to it, does not belong to root or can be written by others; "
            "expected what only root can change, as root works there. Give it to root (chown root, chmod go-w; "
            "namei -l shows the owners), or choose another folder"
        )


def make_private(folder: Path, inside: Sequence[str] = ()) -> None:
    """Make `folder` anew with mode 0700, and folders in it. Raises PrivateError and OSError."""
    for parent in reversed([parent for parent in folder.parents if not parent.exists()]):
        parent.mkdir(mode=0o755)
        parent.chmod(0o755)
    expect_safe(folder.parent)
    if folder.is_dir() and not folder.is_symlink():
        shutil.rmtree(folder)
    elif folder.is_symlink() or folder.exists():
        folder.unlink()
    folder.mkdir(mode=0o700)
    for name in inside:
        (folder / name).mkdir(mode=0o755, parents=True)
        (folder / name).chmod(0o755)


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a file of our own that others cannot write and that is no link. Raises PrivateError and OSError."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        state = os.fstat(file.fileno())
        if not stat.S_ISREG(state.st_mode) or mounts.owner(state) != os.geteuid() or state.st_mode & 0o022:
            raise PrivateError(
                f"{path} is {stat.filemode(state.st_mode)} and belongs to uid {mounts.owner(state)}; expected a file "
                f"of uid {os.geteuid()} that nobody else can write. See who put it there, and remove it"
            )
        yield file


def expect_file(path: Path, sha256: str) -> None:
    """Raise PrivateError unless a file is our own, lies where nobody can exchange it, and has this digest."""
    expect_safe(path.parent)
    digest = hashlib.sha256()
    with opened(path) as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    if digest.hexdigest() != sha256.lower():
        raise PrivateError(
            f"{path} has sha256 {digest.hexdigest()}, expected {sha256.lower()}. Fetch it again, or "
            "correct the sha256 if it is another file on purpose"
        )
