# SPDX-License-Identifier: Apache-2.0
"""Record how far the installation of a virtual environment is, for the controller, which asks meanwhile.

The record is a file in the environment. Sizes are bytes, times are seconds.
"""

from __future__ import annotations

import contextlib
import glob
import os
import threading
import time
import zipfile
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

from ...trainyard.base.shapes import misfit
from ...trainyard.software.pip_progress import COMPILE, DOWNLOAD, INSTALLING, START, UNPACK, PipOutput
from ..machine import install_lock
from ..machine.json_files import MAX_STATE, read_json, write_json

FILE = ".trainyard-progress"
EVERY_S = 2.0


class Progress:
    """Writes the record every few seconds, until its block ends."""

    def __init__(self, path: Path, scratch: Path) -> None:
        """Take the environment, and the folder into which pip downloads."""
        self._path, self._scratch = path, scratch
        self._pip = PipOutput()
        self._stop = threading.Event()
        self._begin()

    def _begin(self) -> None:
        """Begin a step."""
        self._begun = time.monotonic()
        self._before, self._total = 0, self._pip.size
        if self._pip.phase == UNPACK:
            self._before = _size(self._path / "lib")
            wheels = [*map(str, _in_pip_folders(self._scratch, "*.whl")), *self._pip.local]
            self._total = unpacked(map(Path, wheels))
        elif self._pip.phase == COMPILE:
            self._total = _count(self._path / "lib", ".py")

    def read(self, line: str) -> None:
        """Take a line of pip's output."""
        if self._pip.read(line):
            self._begin()

    def compiles(self) -> None:
        """Begin to compile what was installed."""
        self._pip.phase, self._pip.file = COMPILE, ""
        self._begin()

    def record(self) -> dict[str, Any]:
        """Return the present record."""
        pip, done = self._pip, 0
        if pip.phase == DOWNLOAD and pip.file:
            for file in _in_pip_folders(self._scratch, glob.escape(pip.file)):
                done = file.stat().st_size
        elif pip.phase == UNPACK:
            done = max(0, _size(self._path / "lib") - self._before)
        elif pip.phase == COMPILE:
            done = _count(self._path / "lib", ".pyc")
        step = {"phase": pip.phase, "file": pip.file, "number": pip.number, "done": done, "total": self._total}
        return {**step, "seconds": round(time.monotonic() - self._begun, 1)}

    def _write(self) -> None:
        wait_s = EVERY_S
        while not self._stop.wait(wait_s):
            began = time.monotonic()
            # A file may go, or the disk be full; pip reports that.
            with contextlib.suppress(OSError):
                write_json(self._path / FILE, self.record())
            # Many files on a slow file system take their time.
            wait_s = max(EVERY_S, 5 * (time.monotonic() - began))

    def __enter__(self) -> Progress:
        """Begin to write."""
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the record."""
        self._stop.set()
        self._thread.join()
        (self._path / FILE).unlink(missing_ok=True)


def read(path: Path) -> dict[str, Any] | None:
    """Return the record of the environment at `path`; None where nothing is being installed.

    On a shared disk it may be that of another host, for which this one waits.
    """
    found = read_json(path / FILE, MAX_STATE)
    record = None if found is None or misfit(found, INSTALLING) else found
    other = install_lock.holder(path)
    return record if other is None or other.host == install_lock.HOST else {**(record or START), "holder": other.host}


def _in_pip_folders(scratch: Path, name: str) -> list[Path]:
    """Return the files of this name into which pip downloads; pip removes them, and their folders, meanwhile."""
    # Path.glob of Python 3.11 raises where a folder goes between two of its steps.
    return [Path(each) for each in glob.glob(f"{glob.escape(str(scratch))}/pip-unpack-*/{name}")]  # noqa: PTH207


def unpacked(wheels: Iterable[Path]) -> int:
    """Return the size of what is in these wheels."""
    size = 0
    for wheel in wheels:
        with contextlib.suppress(OSError, zipfile.BadZipFile), zipfile.ZipFile(wheel) as archive:
            size += sum(each.file_size for each in archive.infolist())
    return size


def _files(folder: Path) -> Iterable[os.DirEntry[str]]:
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _files(Path(entry.path))
            else:
                yield entry


def _size(folder: Path) -> int:
    size = 0
    for entry in _files(folder):
        with contextlib.suppress(OSError):
            size += entry.stat(follow_symlinks=False).st_size
    return size


def _count(folder: Path, suffix: str) -> int:
    return sum(entry.name.endswith(suffix) for entry in _files(folder))
