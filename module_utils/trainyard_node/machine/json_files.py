# SPDX-License-Identifier: Apache-2.0
"""Read and write the small files of a job: never half written, no links, and bounded in size."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat

# Each rank starts through this module: importing typing or pathlib would double its time.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, BinaryIO

    AnyPath = str | os.PathLike[str]

# Upper bounds of a file, in bytes: node_plan.json, which grows with the nodes of a plan; any other state of a job; the
# record of one process (what it is, how it exited).
MAX_BYTES, MAX_STATE, MAX_EXIT = 256 << 20, 8 << 20, 64 << 10


def write_json(path: AnyPath, data: Any, mode: int = 0o644) -> None:
    """Write a JSON file so that a reader sees the old or the new one, never a half."""
    write_text(path, json.dumps(data) + "\n", mode)


def write_text(path: AnyPath, text: str, mode: int = 0o644) -> None:
    """Write a text so that a reader sees the old or the new one, never a half."""
    write_bytes(path, text.encode(), mode)


def write_bytes(path: AnyPath, content: bytes, mode: int = 0o644) -> None:
    """Write a file so that a reader sees the old or the new one, never a half."""
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode)
    try:
        with os.fdopen(descriptor, "wb") as new:
            new.write(content)
        os.replace(temporary, path)
    except OSError:
        # Half a file would only take space on a full disk.
        os.unlink(temporary)
        raise


def keep_json(path: AnyPath, data: Any, room: int = 0) -> str:
    """Write a JSON file as write_json does, or over the old one on a full disk; return the error, or "".

    The old file is overwritten only where its own blocks have room for the new one. `room` bytes are added for the next
    version of the file.
    """
    try:
        write_text(path, json.dumps(data) + " " * room + "\n")
    except OSError as error:
        with contextlib.suppress(OSError):
            overwrite(path, json.dumps(data) + "\n")
        return error.strerror or str(error)
    return ""


def overwrite(path: AnyPath, text: str) -> None:
    """Write over a file in place, which needs no room. Raises OSError where it is too small."""
    content = text.encode()
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_NOFOLLOW), "wb", buffering=0) as file:
        if len(content) > os.fstat(file.fileno()).st_blocks * 512:
            raise OSError(errno.ENOSPC, "no room in its blocks")
        if file.write(content) != len(content):
            raise OSError(errno.ENOSPC, "half written")
        file.truncate(len(content))


def open_regular(path: AnyPath) -> BinaryIO:
    """Open a regular file to read. Raises OSError for a link, a device, or a pipe, on which a reader would wait."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{os.fspath(path)} is no regular file")
    return os.fdopen(descriptor, "rb")


def end_of(path: AnyPath, most: int = 1 << 20) -> str:
    """Return the end of a log; "" where there is none."""
    try:
        with open_regular(path) as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - most))
            return log.read(most).decode("utf-8", "replace")
    except OSError:
        return ""


def read_json(path: AnyPath, most: int = MAX_BYTES) -> Any:
    """Read a JSON file; None when it does not exist, cannot be read, or has more than `most` bytes."""
    try:
        with open_regular(path) as file:
            content = file.read(most + 1)
        return json.loads(content) if len(content) <= most else None
    except (OSError, ValueError, RecursionError):
        return None


def read_object(path: AnyPath, most: int = MAX_STATE) -> dict[str, Any]:
    """Read a JSON object, an empty one without a file. Any process of the job's user may have written the file."""
    found = read_json(path, most)
    return found if isinstance(found, dict) else {}
