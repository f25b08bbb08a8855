# SPDX-License-Identifier: Apache-2.0
"""Measure how fast this machine writes and reads folders, each of them in a process of its own.

A process that touches a file system whose server is lost may sleep until that server is back, even when it is killed.
So nothing here waits for such a process: it is killed and left behind. Another process removes what it made, at the
latest when that server is back.
"""

from __future__ import annotations

import contextlib
import errno
import json
import mmap
import os
import secrets
import select
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ...trainyard.verify.storage import FILES, FIRST_STEP, PART_S, SILENT_S
from ..machine import as_user, private, shared_folders
from ..machine.as_user import Owner

Answer = dict[str, Any]
Send = Callable[..., None]
# File systems on which O_DIRECT passes by the cache of this machine. Others refuse it or, as tmpfs since Linux 6.6,
# accept it without effect: an error tells nothing.
_DIRECT = frozenset(("ceph", "ext2", "ext3", "ext4", "f2fs", "gpfs", "lustre", "nfs", "nfs4", "xfs"))
# Bytes of one write, and of a small file.
_BLOCK, _SMALL = 4 << 20, 4096
_NOTHING: Answer = {
    **dict.fromkeys(("size", "free", "inodes", "free_inodes", "bytes"), 0),
    **dict.fromkeys(("direct", "read_only", "denied", "silent"), False),
    **{"kind": "", "problem": "", "state": "", "write": None, "read": None, "files": None},
    **{"step": FIRST_STEP, "sharing": shared_folders.NOTHING},
}


def measure(paths: Sequence[str], user: str, size: int, hosts: int, name: str, state: str = "") -> Answer:
    """Return `paths`, what was measured of each, and `folders`, who shares them (shared_folders.look).

    At most `size` bytes are written, and less where `hosts` that do the same at once would fill a quarter of what is
    free. `name` is that of the token by which hosts know that they share a folder, "" for none. The folder `state`,
    which the first job makes, may be missing: then the nearest folder above it is measured.
    """
    owner, found = as_user.named(user), {}
    for path in paths:
        own = f".trainyard-storage-{secrets.token_hex(8)}"
        given = (_measure, (path, path == state), own, size, hosts, name)
        found[path] = {**_NOTHING, **watched(owner, *given), "user": user}
        if found[path]["denied"] and owner.uid and not os.geteuid():
            found[path] = {**_NOTHING, **watched(None, *given), "user": "root"}
        if found[path]["denied"]:
            found[path]["problem"] = f"{user} may not write there"
    return {"paths": found, "folders": {path: each.pop("sharing") for path, each in found.items()}}


def watched(owner: Owner | None, function: Callable[..., None], *arguments: Any) -> Answer:
    """Run a function in a process with the rights of `owner`, and return all that it sends.

    One that sends nothing for SILENT_S seconds is left behind: `silent`, and its `state` as in proc_pid_stat(5).
    """
    child, pipe = _start(owner, function, *arguments)
    poll, found, content, ended = select.poll(), Answer(), b"", False
    poll.register(pipe, select.POLLIN)
    try:
        while not ended and poll.poll(SILENT_S * 1000):
            more = os.read(pipe, 1 << 16)
            *lines, content = (content + more).split(b"\n")
            for line in lines:
                found.update(json.loads(line))
            ended = not more
    finally:
        os.close(pipe)
        state = Path(f"/proc/{child}/stat").read_text(errors="replace").rpartition(") ")[2][:1]
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, os.WNOHANG)
        if not ended:
            os.close(_start(owner, _remove, *arguments[:2])[1])
    return found if ended else {**found, "silent": True, "state": state}


def _start(owner: Owner | None, function: Callable[..., None], *arguments: Any) -> tuple[int, int]:
    """Start a process; return its id and the pipe of what it sends. It holds nothing open that others wait for."""
    read, write = os.pipe()
    child = os.fork()
    if child:
        os.close(write)
        return child, read

    def send(**values: Any) -> None:
        os.write(write, json.dumps(values).encode() + b"\n")

    try:
        # A connection that ends must not kill it before it has removed its files.
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for number in {int(each) for each in os.listdir("/proc/self/fd")} - {write}:  # noqa: PTH208
            with contextlib.suppress(OSError):
                os.dup2(null, number) if number < 3 else os.close(number)
        if owner and not os.geteuid():
            as_user.become(owner)
        function(send, *arguments)
        send(step="")
    except Exception as error:
        send(problem=getattr(error, "strerror", None) or as_user.error_text(error))
    finally:
        os._exit(0)


def _nearest(path: str, made_later: bool) -> str:
    """Return a folder, or the nearest one above it where a job makes it later."""
    places = [Path(path), *Path(path).parents] if made_later else []
    return next((str(place) for place in places if place.is_dir()), path)


def _remove(_send: Send, place: tuple[str, bool], own: str) -> None:
    shutil.rmtree(Path(_nearest(*place), own), ignore_errors=True)


def _measure(send: Send, place: tuple[str, bool], own: str, size: int, hosts: int, name: str) -> None:
    """Send what is found of a folder, step by step: where one hangs, the others are known."""
    try:
        path = _nearest(*place)
        folder = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except PermissionError:
        send(denied=True)
        return
    kind, room = shared_folders.mounted(folder)[0], os.statvfs(path)
    direct, read_only, free = kind in _DIRECT, bool(room.f_flag & os.ST_RDONLY), room.f_bavail * room.f_frsize
    send(kind=kind, direct=direct, read_only=read_only, size=room.f_blocks * room.f_frsize, free=free)
    # Root writes only where nobody else could exchange the folder.
    writable = os.access(path, os.W_OK | os.X_OK) and (os.geteuid() or private.only_root_changes(Path(path)))
    send(inodes=room.f_files, free_inodes=room.f_favail, denied=not writable and not read_only)
    if read_only or not writable:
        return
    if name:
        send(sharing=shared_folders.look_at(folder, name, secrets.token_hex(16)))
    size = min(size, free // (4 * hosts)) // _BLOCK * _BLOCK
    if size and (room.f_favail or not room.f_files):
        inside = Path(path, own)
        inside.mkdir(0o700)
        try:
            _measure_inside(send, inside, size, direct)
        finally:
            _remove(send, (path, False), own)


def _measure_inside(send: Send, inside: Path, size: int, direct: bool) -> None:
    # Direct transfers need memory that begins at a page.
    block = mmap.mmap(-1, _BLOCK)
    block.write(os.urandom(_BLOCK))
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | (os.O_DIRECT if direct else 0)
    written = done = number = 0

    def rate(count: int) -> float:
        return count / max(time.monotonic() - begun, 1e-6)

    # NFS keeps a name for a removed file that is open.
    with os.fdopen(os.open(inside / "large", flags, 0o600), "rb+", buffering=0) as opened:
        file = opened.fileno()
        send(step="writing")
        begun = time.monotonic()
        while written < size and time.monotonic() - begun < PART_S:
            written += os.write(file, block)
            if not direct:
                # Otherwise the last flush is as long as all of it, and looks like a hang.
                os.fdatasync(file)
            send()
        os.fsync(file)
        send(write=rate(written), bytes=written, step="reading")
        if not direct:
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        begun = time.monotonic()
        while done < written and time.monotonic() - begun < PART_S:
            count = os.preadv(file, [block], done)
            if not count:
                raise OSError(errno.EIO, f"the file ends after {done} of {written} bytes")
            done += count
            send()
    send(read=rate(done), step="small files")
    begun = time.monotonic()
    while number < FILES and time.monotonic() - begun < PART_S:
        small = inside / str(number)
        small.write_bytes(bytes(_SMALL))
        small.read_bytes()
        small.unlink()
        number += 1
        send()
    send(files=rate(number))
