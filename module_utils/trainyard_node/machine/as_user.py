# SPDX-License-Identifier: Apache-2.0
"""Run a function as another user, in a child process: root never touches files that this user may swap.

A process with only this user's rights writes, reads and removes the user's files. So links, special files and renamed
folders lead nowhere that the user could not go alone. No process of the user can trace it, as it has changed its user
and started no program since (prctl(2), PR_SET_DUMPABLE).

Without root's rights a function runs in place.
"""

from __future__ import annotations

import json
import os
import pwd
import select
import signal
import stat
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

# So long a child may take where nothing else is said, in seconds; and so much it may answer.
LIMIT_S = 240.0
MOST_BYTES = 512 << 20
KILLED = "what works in the job's folder as its user was killed: see the kernel's log for a lack of memory"


class JobError(Exception):
    """The job cannot be started or ended here. The text says what was found and what to do."""


class Owner(NamedTuple):
    """The user whose rights a function gets."""

    uid: int
    gid: int
    groups: list[int]


def named(user: str) -> Owner:
    """Return a user by name. Raises JobError where there is none."""
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        raise JobError(f"no user {user}: expected the training user; run site.yml") from None
    return Owner(entry.pw_uid, entry.pw_gid, os.getgrouplist(user, entry.pw_gid))


def owner_of(path: Path) -> Owner | None:
    """Return whose rights are enough for a folder; None where there is no such folder.

    A link or an open folder of root's may have been moved to where it is by the user above it, whose rights do then.
    """
    try:
        state = os.lstat(path)
        if not state.st_uid and (not stat.S_ISDIR(state.st_mode) or state.st_mode & 0o022):
            state = next((above for above in map(os.lstat, path.parents) if above.st_uid), state)
    except OSError:
        return None
    try:
        return named(pwd.getpwuid(state.st_uid).pw_name)
    except KeyError:
        return Owner(state.st_uid, state.st_gid, [])


def said(error: BaseException) -> str:
    """Return an error as one text; what the project itself says needs no class before it."""
    return str(error) if isinstance(error, JobError) else f"{type(error).__name__}: {error}"


def run(owner: Owner, function: Callable[..., Any], *arguments: Any, limit_s: float = LIMIT_S) -> Any:
    """Return what a function returns that runs as `owner`, as JSON has it.

    Raises JobError with what it raised there, or when it takes longer than `limit_s`. A function that runs in place
    raises what it raises. All that it imports must have been imported: the modules of an agent may be root's alone.
    """
    if os.geteuid() or not owner.uid:
        return function(*arguments)
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        _be(owner, write, function, arguments)
    os.close(write)
    try:
        told = _read_all(read, time.monotonic() + limit_s)
        answer = json.loads(told) if told else {"said": KILLED}
    finally:
        os.close(read)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    if "said" in answer:
        raise JobError(answer["said"])
    return answer["result"]


def _be(owner: Owner, write: int, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Be the child: leave root's rights for good, run the function, say what came of it."""
    try:
        try:
            os.setgroups(owner.groups)
            os.setgid(owner.gid)
            os.setuid(owner.uid)
            os.umask(0o027)
            answer = {"result": function(*arguments)}
        except BaseException as error:
            answer = {"said": said(error)}
        with os.fdopen(write, "w") as pipe:
            json.dump(answer, pipe)
    finally:
        os._exit(0)


def _read_all(descriptor: int, until: float) -> bytes:
    poll, content = select.poll(), bytearray()
    poll.register(descriptor, select.POLLIN)
    while poll.poll(max(0.0, until - time.monotonic()) * 1000):
        more = os.read(descriptor, 1 << 20)
        if not more:
            return bytes(content)
        content += more
        if len(content) > MOST_BYTES:
            raise JobError(f"the folder of the job has more than {MOST_BYTES >> 20} MiB to tell; remove it by hand")
    raise JobError("the folder of the job cannot be read in time: look at its file system")


def in_folder(folder: Path, without: Any, function: Callable[..., Any], *arguments: Any, **limits: float) -> Any:
    """Return what a function of a folder returns as the folder's owner; `without` where there is no such folder."""
    owner = owner_of(folder)
    return without if owner is None else run(owner, function, folder, *arguments, **limits)


def in_each(folders: Iterable[Path], function: Callable[[Path], Any]) -> dict[Path, Any]:
    """Return what a function returns of each of these folders, as its owner; without those that cannot be read."""
    of_owners: dict[int, list[Path]] = {}
    owners = {}
    for folder in folders:
        owner = owner_of(folder)
        if owner is not None:
            owners[owner.uid] = owner
            of_owners.setdefault(owner.uid, []).append(folder)
    return {
        folder: result
        for uid, theirs in of_owners.items()
        for folder, result in zip(theirs, run(owners[uid], _each, theirs, function))
        if result is not None
    }


def _each(folders: list[Path], function: Callable[[Path], Any]) -> list[Any]:
    return [_or_none(folder, function) for folder in folders]


def _or_none(folder: Path, function: Callable[[Path], Any]) -> Any:
    # A damaged folder of one job must not hide those of the others.
    try:
        return function(folder)
    except (ArithmeticError, AttributeError, LookupError, OSError, TypeError, ValueError):
        return None
