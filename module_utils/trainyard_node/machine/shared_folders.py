# SPDX-License-Identifier: Apache-2.0
"""Find out whether this host shares folders with others: by the kernel, or by a token (trainyard/cluster/sharing.py).

The token is a symbolic link that leads nowhere: symlink(2) creates it with its content at once and only where no such
name exists, so of many hosts one leaves its token, and the others read it. Its name was never looked up before, so NFS
has no cached answer for it.

The training user writes, or else the owner of the folder: root writes only where nobody else could exchange folders.
A server that gives root no rights (root_squash) has given them to one of these.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ...trainyard.cluster.sharing import LOCAL, TOKEN
from . import as_user, private
from .as_user import JobError, Owner

Answer = dict[str, Any]
NOTHING: Answer = {"kernel": False, "place": "", "token": "", "wrote": False}
# A network file system may hang: then it is not known who shares it. In seconds.
LIMIT_S = 20.0
# No launch needs its token for so long, in seconds; and entries of a folder among which old ones are searched.
OLD_S, MAX_LISTED = 3600.0, 1000
_BOOT_ID, _MOUNTS = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/mountinfo")
_ESCAPED = re.compile(r"\\([0-7]{3})")
# A name of a token; the controller chooses it.
_NAME = re.compile(r"\.trainyard-[0-9a-f]{16}")
# A source on a server that other hosts may name, too: `files:/home`, `//files/home`. A name of this host itself stands
# for any server behind a tunnel.
_SERVER = re.compile(r"//[^/]|(?!localhost|127\.|\[?::1)[^/]+:/")


def look(name: str, folders: Sequence[str], user: str) -> dict[str, Answer]:
    """Return what this host knows of each folder or, where it is not there yet, of the nearest folder above it.

    On file systems of other hosts a token of this `name` is left or read.
    """
    _expect(name)
    token, seen = secrets.token_hex(16), {folder: dict(NOTHING) for folder in folders}
    for owner, theirs in _owners(folders, user):
        left = [folder for folder in theirs if not (seen[folder]["kernel"] or seen[folder]["token"])]
        try:
            found = as_user.run(owner, _each, look_at, left, name, token, limit_s=LIMIT_S) if left else {}
        except JobError:
            # A file system that hangs answers nobody.
            break
        seen |= {folder: answer for folder, answer in found.items() if answer != NOTHING}
    return seen


def forget(name: str, folders: Sequence[str], user: str) -> Answer:
    """Remove the tokens of this `name`; return the folders in which one is `left`."""
    _expect(name)
    left = list(folders)
    for owner, theirs in _owners(folders, user):
        tried = [folder for folder in theirs if folder in left]
        with contextlib.suppress(JobError, OSError):
            removed = as_user.run(owner, _each, _forget, tried, name, limit_s=LIMIT_S) if tried else {}
            left = [folder for folder in left if not removed.get(folder)]
    return {"left": left}


def _expect(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise JobError(f"{name!r}: expected the name of a token")


def _owners(folders: Sequence[str], user: str) -> Iterator[tuple[Owner, list[str]]]:
    """Yield whose rights may be enough in which folders: those of the user, then those of each folder's owner."""
    with contextlib.suppress(JobError):
        yield as_user.named(user), list(folders)
    if os.geteuid():
        return
    for folder in folders:
        # Unlike Path.is_dir, no error where root has no rights.
        there = next(above for above in (Path(folder), *Path(folder).parents) if os.path.isdir(above))  # noqa: PTH112
        owner = as_user.owner_of(there, mounted=True)
        if owner and (owner.uid or private.only_root_changes(there)):
            yield owner, [folder]


def _each(function: Callable[..., Any], folders: Sequence[str], *arguments: str) -> dict[str, Any]:
    found = {}
    for folder in folders:
        with contextlib.suppress(OSError), _opened(Path(folder)) as descriptor:
            found[folder] = function(descriptor, *arguments)
    return found


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[int]:
    """Open a folder, or the nearest one above it. Raises OSError where rights are missing to know which one it is."""
    for place in (folder, *folder.parents):
        try:
            descriptor = os.open(place, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            continue
        try:
            yield descriptor
        finally:
            os.close(descriptor)
        return


def look_at(descriptor: int, name: str, token: str) -> Answer:
    """Return what this host knows of an open folder; on file systems of other hosts leave or read a token."""
    state = os.fstat(descriptor)
    kind, source, root = mounted(descriptor)
    if kind in LOCAL:
        kernel = _BOOT_ID.read_text().strip()
        return {**NOTHING, "kernel": True, "place": _digest(kernel, str(state.st_dev), str(state.st_ino))}
    place = _digest(kind, source, root, str(state.st_ino)) if _SERVER.match(source) else ""
    return {**NOTHING, "place": place, **_exchange(descriptor, name, token)}


def _exchange(descriptor: int, name: str, token: str) -> Answer:
    """Leave a token, or read the one that another host has left."""
    wrote, found = False, ""
    # Another host was first, or nothing may be written here.
    with contextlib.suppress(OSError):
        os.symlink(token, name, dir_fd=descriptor)
        wrote = True
    with contextlib.suppress(OSError):
        found = os.readlink(name, dir_fd=descriptor)
    return {"token": found if TOKEN.fullmatch(found) else "", "wrote": wrote}


def _forget(descriptor: int, name: str) -> bool:
    """Remove a token, and those of launches that were killed before they removed theirs."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=descriptor)
    with contextlib.suppress(OSError):
        for old in _old_names(descriptor):
            os.unlink(old, dir_fd=descriptor)
    return True


def _old_names(descriptor: int) -> list[str]:
    listed = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=descriptor)
    try:
        with os.scandir(listed) as entries:
            names = [each.name for each in itertools.islice(entries, MAX_LISTED) if _NAME.fullmatch(each.name)]
    finally:
        os.close(listed)
    states = {name: os.lstat(name, dir_fd=descriptor) for name in names}
    too_old = time.time() - OLD_S
    return [name for name, state in states.items() if stat.S_ISLNK(state.st_mode) and state.st_mtime < too_old]


def mounted(descriptor: int) -> tuple[str, str, str]:
    """Return the type, the source and the root of the file system of an open folder, see proc_pid_mountinfo(5)."""
    about = Path(f"/proc/self/fdinfo/{descriptor}").read_text()
    number = next((line.split()[1] for line in about.splitlines() if line.startswith("mnt_id:")), "")
    for line in _MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines():
        before, _, after = line.partition(" - ")
        words, rest = before.split(), after.split()
        if words[:1] == [number] and len(words) > 3 and len(rest) > 1:
            return rest[0], _plain(rest[1]), _plain(words[3])
    return "", "", ""


def _plain(text: str) -> str:
    """Return a path of mountinfo without its octal escapes."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 8)), text)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:32]
