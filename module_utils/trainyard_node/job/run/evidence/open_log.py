# SPDX-License-Identifier: Apache-2.0
"""Hold the log of a rank open, and read on where it shrinks, or is removed or replaced while its rank writes.

`truncate -s 0` and logrotate's copytruncate shrink a log to which its rank appends: it begins anew. A rank goes on
writing into a log that was removed or renamed, and a process that has it open can read all of it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

from .....trainyard.job.run.measure.checkpoints import file_size
from ....machine.json_files import open_regular

# Bytes before the place of reading, by which a log that began anew is recognized.
_BEFORE = 64
# Upper bound for what is put back of a removed log, and how much of it at once, in bytes.
RESTORED, _PIECE = 16 << 20, 1 << 20


class OpenLog:
    """A log that is read from its begin to its end, whatever becomes of its name."""

    def __init__(self, path: Path) -> None:
        """Follow the log at `path`, which may not exist yet."""
        self._path, self._before = path, b""
        self._file: BinaryIO | None = None
        # How many bytes were read, and whether reading began anew, so that the last line has no end.
        self.offset, self.anew = 0, False
        # How often the log was cut, the bytes that went with that, and what became of its name, or "".
        self._cuts, self._gone, self._moved = 0, 0, ""

    @property
    def loss(self) -> str:
        """Return what became of this log, "" for nothing."""
        often = f" {self._cuts} times" if self._cuts > 1 else ""
        cut = f"was cut{often}: {file_size(self._gone)} that were read are gone from it" if self._cuts else ""
        found = ", and ".join(filter(None, (cut, self._moved)))
        return f"{self._path.name} {found}" if found else ""

    def behind(self) -> int:
        """Return how many bytes there are to read. Notice here what became of the log."""
        try:
            if self._file is None:
                self._begin(open_regular(self._path))
            if self.at(self.offset - len(self._before), len(self._before)) != self._before:
                self._cuts, self._gone = self._cuts + 1, self._gone + self.offset
                self._begin(self._file)
            if self._size() == self.offset:
                self._follow_name()
            return self._size() - self.offset
        except OSError:
            return 0

    def read(self, size: int) -> bytes:
        """Read on, at most `size` bytes."""
        new = self.at(self.offset, size)
        self.offset += len(new)
        self._before = (self._before + new)[-_BEFORE:]
        return new

    def skip(self, size: int) -> None:
        """Leave bytes out."""
        self.offset += size
        self._before = self.at(max(0, self.offset - _BEFORE), min(_BEFORE, self.offset))

    def at(self, place: int, size: int) -> bytes:
        """Read bytes from a place, and do not go on there. Raises OSError."""
        return os.pread(self._file.fileno(), size, place) if self._file and size else b""

    def restore(self) -> None:
        """Put a removed log of a rank that has ended back under its name, so that it is collected."""
        try:
            named, size = self._named(), self._size()
            if not size or (named and (named.st_size or self._is_open(named))):
                return
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            with os.fdopen(os.open(self._path, flags, 0o644), "wb") as back:
                begin = max(0, size - RESTORED)
                for place in range(begin, size, _PIECE):
                    back.write(self.at(place, min(_PIECE, size - place)))
            self._moved = f"was removed: the monitor put {'all' if not begin else 'the last'} "
            self._moved += f"{file_size(size - begin)} of it back" + (f", {file_size(begin)} are lost" if begin else "")
            self._begin(open_regular(self._path))
            self.skip(self._size())
        except OSError as error:
            self._moved = f"was removed, and could not be put back: {error.strerror or error}"

    def _begin(self, file: BinaryIO | None) -> None:
        if self._file and self._file is not file:
            self._file.close()
        self._file, self.offset, self._before, self.anew = file, 0, b"", True

    def _size(self) -> int:
        return os.fstat(self._file.fileno()).st_size if self._file else 0

    def _named(self) -> os.stat_result | None:
        """Return the state of what is at the path; None for nothing."""
        try:
            return self._path.lstat()
        except FileNotFoundError:
            return None

    def _is_open(self, named: os.stat_result) -> bool:
        return bool(self._file) and os.path.samestat(os.fstat(self._file.fileno()), named)  # type: ignore[union-attr]

    def _follow_name(self) -> None:
        """Go on with another file at the path once something is in it: a rank writes on into the one that it has."""
        named = self._named()
        if named and self._is_open(named):
            return
        if not named or not named.st_size:
            self._moved = "was removed: its rank writes on into the removed file, which the monitor reads"
            return
        self._moved = f"was replaced by another file: {file_size(self.offset)} that were read are gone"
        self._begin(open_regular(self._path))
