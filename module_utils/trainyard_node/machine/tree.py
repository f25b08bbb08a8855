# SPDX-License-Identifier: Apache-2.0
"""Read a machine: its files under a root, and the output of its tools.

The root is `/` on a real machine. Any other root is a captured tree: files lie under it at their own paths
(`sys/class/net/eth0/mtu`), the output of the command called NAME is in commands/NAME.out, its exit status in
commands/NAME.rc (absent: 0). A command without an .out file counts as not installed. Nothing is run or written for a
captured tree.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from . import programs
from .programs import NOBODY

# Upper bound for reading a file, in bytes: /proc/net/tcp has 150 for each connection.
MAX_BYTES = 64 << 20
_PART = 1 << 20
# Vendors install their tools outside the PATH of a non-interactive ssh session.
_TOOL_FOLDERS = ("/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/local/sbin", "/usr/local/bin")


def open_file(path: Path) -> BinaryIO:
    """Open a regular file, or a link to one. Raises OSError for a pipe, on which a reader would wait."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "no regular file", str(path))
    return os.fdopen(descriptor, "rb")


def _read(file: BinaryIO, most: int) -> bytes:
    """Read at most so many bytes, in parts: Linux refuses a read of more than 4 MiB from a file below /proc/sys."""
    content = b""
    while len(content) < most:
        part = file.read(min(most - len(content), _PART))
        if not part:
            break
        content += part
    return content


def size_of(folder: Path) -> int:
    """Return the size of all files in a folder, in which others may be making and removing some."""
    size = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            size += path.lstat().st_size
    return size


class Outcome(NamedTuple):
    """The output of a command (stdout and stderr together) and its exit status."""

    status: int
    output: str


class Tree:
    """A real machine or a captured one; unreadable files read as None, as sysfs answers many reads with EINVAL."""

    def __init__(self, root: str = "/") -> None:
        """Read below root."""
        self._root = Path(root)
        self.captured = self._root.resolve() != Path("/")

    def path(self, path: str) -> Path:
        """Return where a path of the machine lies."""
        return self._root / path.lstrip("/")

    def text(self, path: str, most: int = MAX_BYTES) -> str | None:
        """Return a regular file's content without surrounding white space, at most so many bytes of it."""
        try:
            with open_file(self.path(path)) as file:
                return _read(file, most).decode("utf-8", "replace").strip()
        except OSError:
            return None

    def number(self, path: str) -> int | None:
        """Return a file's content as an integer."""
        try:
            return int(self.text(path) or "")
        except ValueError:
            return None

    def names(self, path: str) -> list[str]:
        """Return the sorted names in a folder; none where there is no such folder."""
        try:
            return sorted(os.listdir(self.path(path)))  # noqa: PTH208 (Python 3.9: iterdir costs twice as much)
        except OSError:
            return []

    def exists(self, path: str) -> bool:
        """Tell whether a file, folder or link is there, also a link whose target is outside a captured tree."""
        return os.path.lexists(self.path(path))

    def tool(self, name: str) -> str | None:
        """Return the path of an installed tool, also outside PATH."""
        folders = [*os.environ.get("PATH", "").split(os.pathsep), *_TOOL_FOLDERS]
        return shutil.which(name, path=os.pathsep.join(folder for folder in folders if folder))

    def output(self, name: str, argv: list[str], timeout: float = 30) -> str | None:
        """Return the output of a command that succeeds, None where it fails or is not installed."""
        outcome = self.command(name, argv, timeout)
        return outcome.output if outcome and outcome.status == 0 else None

    def command(self, name: str, argv: list[str], timeout: float, as_nobody: bool = False) -> Outcome | None:
        """Run a command, or read its captured output; None where it is not installed.

        A program that is named by its path has the rights of the user who can exchange it (programs.py).
        With `as_nobody` root runs it as an unprivileged user, with a clean environment, in `/`.
        """
        if self.captured:
            output = self.text(f"commands/{name}.out")
            return None if output is None else Outcome(self.number(f"commands/{name}.rc") or 0, output)
        program = self.tool(argv[0])
        if program is None:
            return None
        settings: dict[str, Any] = {"env": {**os.environ, "LC_ALL": "C"}}
        if as_nobody and not os.geteuid():
            settings = {"user": NOBODY, "group": NOBODY, "extra_groups": [], "cwd": "/"}
            # Open MPI 5 ends without a home.
            settings["env"] = {"PATH": os.pathsep.join(_TOOL_FOLDERS), "HOME": "/", "LC_ALL": "C"}
        elif "/" in argv[0]:
            settings = programs.settings(program) or settings
        try:
            process = subprocess.Popen(
                [program, *argv[1:]],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                **settings,
            )
        except OSError as error:
            return Outcome(126, str(error))
        try:
            printed, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            # Without waiting for its end: a process that hangs in a driver ends only when the driver returns.
            process.kill()
            return Outcome(124, f"no answer within {timeout:.0f} s")
        return Outcome(process.returncode, printed.decode("utf-8", errors="replace"))
