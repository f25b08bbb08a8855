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

from ...trainyard.job.record.folder_layout import common_dir
from . import mounts

# Default time limit of a child in seconds, and upper bound of its answer.
LIMIT_S = 240.0
MAX_BYTES = 512 << 20
KILLED = "the process in the job's folder was killed: see the kernel's log for a lack of memory"


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


def owner_of(path: Path, mounted: bool = False) -> Owner | None:
    """Return the user whose rights are enough for a folder; None where there is no such folder.

    A link or an open folder of root's may have been moved to its place by the owner of a folder above, who counts then.
    A folder of root's on another file system than the folder above is none either, unless it may be `mounted`: a user
    could have mounted it there, and a user's file system names any owner.
    """
    try:
        state = os.lstat(path)
        uid = mounts.owner(state)
        if not uid and stat.S_ISDIR(state.st_mode) and not mounted and state.st_dev != path.parent.stat().st_dev:
            return None
        if not uid and (not stat.S_ISDIR(state.st_mode) or state.st_mode & 0o022):
            uid = next(filter(None, (mounts.owner(os.lstat(above)) for above in path.parents)), uid)
    except OSError:
        return None
    try:
        return named(pwd.getpwuid(uid).pw_name)
    except KeyError:
        return Owner(uid, state.st_gid if uid == state.st_uid else uid, [])


def error_text(error: BaseException) -> str:
    """Return an error as one text; a message of the project itself needs no class before it."""
    return str(error) if isinstance(error, JobError) else f"{type(error).__name__}: {error}"


def run(owner: Owner, function: Callable[..., Any], *arguments: Any, limit_s: float = LIMIT_S) -> Any:
    """Run a function as `owner` and return its result, as JSON has it.

    Raises JobError with its error, or when it takes longer than `limit_s`; a function that runs in place raises its own
    error. All that it imports must have been imported: the modules of an agent may be root's alone.
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
        content = _read_all(read, time.monotonic() + limit_s)
        answer = json.loads(content) if content else {"error": KILLED}
    finally:
        os.close(read)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    if "error" in answer:
        raise JobError(answer["error"])
    return answer["result"]


def become(owner: Owner) -> None:
    """Leave root's rights for those of `owner`, for good."""
    os.setgroups(owner.groups)
    os.setgid(owner.gid)
    os.setuid(owner.uid)


def _be(owner: Owner, write: int, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Be the child: leave root's rights for good, run the function, write its result or error."""
    try:
        try:
            become(owner)
            os.umask(0o027)
            answer = {"result": function(*arguments)}
        except BaseException as error:
            answer = {"error": error_text(error)}
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
        if len(content) > MAX_BYTES:
            raise JobError(f"the folder of the job has more than {MAX_BYTES >> 20} MiB to read; remove it by hand")
    raise JobError("the folder of the job cannot be read in time: check its file system")


def of_job(folder: Path) -> Owner | None:
    """Return the user of a node's part of a job's folder; None where there is none.

    In the folder of the job its user could put what belongs to others in the place of that part.
    """
    return owner_of(Path(common_dir(str(folder)))) if os.path.lexists(folder) else None


def in_folder(folder: Path, without: Any, function: Callable[..., Any], *arguments: Any, **limits: float) -> Any:
    """Run a function of a job's folder as the job's user; return its result, or `without` where there is no folder."""
    owner = of_job(folder)
    return without if owner is None else run(owner, function, folder, *arguments, **limits)


def in_each(folders: Iterable[Path], function: Callable[[Path], Any]) -> dict[Path, Any]:
    """Run a function of each job's folder as its user; return the results, without folders that cannot be read."""
    of_owners: dict[int, tuple[Owner, list[Path]]] = {}
    for folder in folders:
        owner = of_job(folder)
        if owner is not None:
            of_owners.setdefault(owner.uid, (owner, []))[1].append(folder)
    results: dict[Path, Any] = {}
    for owner, theirs in of_owners.values():
        results.update(zip(theirs, run(owner, _each, theirs, function)))
    return {folder: result for folder, result in results.items() if result is not None}


def _each(folders: list[Path], function: Callable[[Path], Any]) -> list[Any]:
    results = []
    for folder in folders:
        # A damaged folder of one job must not hide those of the others.
        try:
            results.append(function(folder))
        except (ArithmeticError, AttributeError, LookupError, OSError, TypeError, ValueError):
            results.append(None)
    return results
