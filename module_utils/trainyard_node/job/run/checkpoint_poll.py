# SPDX-License-Identifier: Apache-2.0
"""The watch over a job's checkpoints, by the monitor of the node that has rank 0, with the rights of the job's user.

It looks in a thread of its own: a network's file system may let a look wait for minutes, and nothing else of the
monitor may. At most one look waits; a look takes at most a twentieth of the time between two.
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ....trainyard.job.run import checkpoints
from ....trainyard.job.run.checkpoints import Book, Look
from ...machine.json_files import open_regular

# Between two looks, in s; a look that takes longer than a twentieth of that makes the next one later.
LOOK_S, SHARE = 2.0, 20
# A look that takes longer is said.
LATE_S = 30.0
# Entries of folders that one look reads; of those that match so many are looked at, and of a folder so many files.
MOST_ENTRIES, MOST_MATCHES, MOST_FILES, MOST_FORMS = 200_000, 1000, 20_000, 64
MOST_DEPTH = 16
_SIGNS = "*?["


class Watch:
    """Follows a folder or pattern of checkpoints."""

    def __init__(self, job_dir: Path, pattern: str) -> None:
        """Watch `pattern`, which counts from the job's folder; nothing where it is ""."""
        self._pattern = str(job_dir / pattern) if pattern else ""
        self._book = Book()
        self._known: dict[str, Any] = {"newest": None, "unfinished": None, "problem": ""}
        self._looked = False
        self._began: float | None = None
        self._asked = threading.Event()
        self._done = threading.Event()
        # Which attempt runs since when (seconds since the epoch), and whether it does.
        self.attempt, self.attempt_began, self.running = 0, 0.0, False
        if pattern:
            threading.Thread(target=self._watch, name="checkpoints", daemon=True).start()

    def state(self) -> dict[str, Any] | None:
        """Return what is known, None before the first look and where nothing is to be watched."""
        began = self._began
        waits_s = time.monotonic() - began if began is not None else 0.0
        if waits_s > LATE_S:
            late = f"{self._pattern} does not answer: a look waits for {round(waits_s)} s"
            return {**self._known, "problem": late}
        return self._known if self._looked else None

    def look_again(self, seconds: float) -> None:
        """Have another look now, and wait for it for so long at most."""
        if self._pattern:
            self._done.clear()
            self._asked.set()
            self._done.wait(seconds)

    def _watch(self) -> None:
        while True:
            self._asked.clear()
            self._began = begun = time.monotonic()
            attempt, attempt_began, running = self.attempt, self.attempt_began, self.running
            try:
                looks, problem = look(self._pattern), ""
                known = self._book.take(looks, attempt, attempt_began, running)
            except OSError as error:
                known, problem = {}, f"{self._pattern}: {error.strerror or error}"
            self._known, self._looked = {**self._known, **known, "problem": problem[:300]}, True
            self._began = None
            self._done.set()
            self._asked.wait(max(LOOK_S, SHARE * (time.monotonic() - begun)))


def look(pattern: str) -> list[Look]:
    """Look at the newest of the checkpoints that a folder has, or that match a pattern. Raises OSError."""
    place = Path(pattern)
    if any(sign in pattern for sign in _SIGNS):
        found = list(_matches(place))
    elif place.is_dir():
        found = [place / name for name in _names(place, [MOST_ENTRIES]) if checkpoints.looks_like_one(name)]
    else:
        place.lstat()
        found = [place]
    found.sort(key=lambda path: checkpoints.natural(path.name))
    times = {}
    for path in found[-MOST_MATCHES:]:
        # It may have been removed meanwhile; a link names another one.
        with contextlib.suppress(OSError):
            state = path.lstat()
            if stat.S_ISREG(state.st_mode) or stat.S_ISDIR(state.st_mode):
                times[path] = state.st_mtime
    newest = sorted(times, key=lambda path: times[path])[-checkpoints.MOST_LOOKED_AT :]
    whole, later = _marked([path for path in newest if path.is_dir()])
    looks = []
    for path in newest:
        with contextlib.suppress(OSError):
            looks.append(_look_at(path, path in whole, path in later))
    return looks


def _matches(pattern: Path) -> Iterator[Path]:
    """Return the paths that match an absolute pattern, part by part."""
    left, folders = [MOST_ENTRIES], [Path(pattern.anchor)]
    for part in pattern.parts[1:-1]:
        if any(sign in part for sign in _SIGNS):
            there = (folder / name for folder in folders for name in _matching(folder, part, left))
            folders = [path for path in there if path.is_dir() and not path.is_symlink()]
        else:
            folders = [folder / part for folder in folders]
    for folder in folders:
        for name in _matching(folder, pattern.name, left):
            if name not in checkpoints.MARKERS:
                yield folder / name


def _matching(folder: Path, part: str, left: list[int]) -> list[str]:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
        return [name for name in _names(folder, left) if fnmatch.fnmatchcase(name, part)]
    return []


def _names(folder: Path, left: list[int]) -> Iterator[str]:
    """Return the names in a folder, at most as many as are left."""
    with os.scandir(folder) as entries:
        for entry in entries:
            left[0] -= 1
            if left[0] < 0:
                raise OSError(f"more than {MOST_ENTRIES} entries: name fewer with job_checkpoints")
            yield entry.name


def _marked(folders: list[Path]) -> tuple[set[Path], set[Path]]:
    """Return which of the folders a marker beside them proves whole, and which it does not name yet."""
    whole: set[Path] = set()
    later: set[Path] = set()
    for parent in {path.parent for path in folders}:
        names = {path.name: path for path in folders if path.parent == parent}
        for marker in checkpoints.MARKERS:
            with contextlib.suppress(OSError), open_regular(parent / marker) as there:
                found = checkpoints.marked(list(names), there.read(256).decode("utf-8", "replace"))
                whole |= {names[name] for name in found[0]}
                later |= {names[name] for name in found[1]}
    return whole, later


def _look_at(path: Path, named: bool, not_named: bool) -> Look:
    """Look at one checkpoint. Raises OSError where it is gone."""
    shown = os.fsencode(path.name).decode("utf-8", "backslashreplace")[:255]
    fault = "its name says that it is being written" if checkpoints.is_temporary(path.name) else ""
    state = path.lstat()
    if stat.S_ISREG(state.st_mode):
        said, proved = _form(path, state.st_size)
        return Look(shown, state.st_mtime, state.st_size, 1, fault or said, proved and not (fault or said))
    folders: dict[str, list[str]] = {}
    forms: list[tuple[str, Path, int]] = []
    newest, size, count = state.st_mtime, 0, 0
    for at, name, known in _files(path, "", 0):
        if count >= MOST_FILES:
            break
        folders.setdefault(at, []).append(name)
        newest, size, count = max(newest, known.st_mtime), size + known.st_size, count + 1
        # Some files are empty, and are meant so.
        if known.st_size and stat.S_ISREG(known.st_mode) and len(forms) < MOST_FORMS:
            forms.append((f"{at}{name}", path / at / name, known.st_size))
    if not_named:
        fault = fault or "the file that names the newest one does not name it yet"
    said, proved = checkpoints.folder_fault(folders)
    fault = fault or said or ("" if count else "it is empty")
    for name, file, bytes_of in () if fault else forms:
        wrong = _form(file, bytes_of)[0]
        fault = fault or (f"{name}: {wrong}" if wrong else "")
    return Look(shown, newest, size, count, fault, (named or proved) and not fault)


def _files(root: Path, at: str, depth: int) -> Iterator[tuple[str, str, os.stat_result]]:
    """Return the files of a folder and below: the folder they are in, name, state. Links lead nowhere."""
    below = []
    with os.scandir(root / at) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):
                if entry.is_dir(follow_symlinks=False):
                    below.append(entry.name)
                else:
                    yield at, entry.name, entry.stat(follow_symlinks=False)
    for name in below if depth < MOST_DEPTH else ():
        yield from _files(root, f"{at}{name}/", depth + 1)


def _form(path: Path, size: int) -> tuple[str, bool]:
    with open_regular(path) as there:
        head = there.read(8)
        if path.suffix == ".safetensors" and len(head) == 8:
            head += there.read(min(int.from_bytes(head, "little"), checkpoints.HEADER_BYTES))
        there.seek(max(0, size - checkpoints.TAIL_BYTES))
        return checkpoints.file_fault(path.name, size, head, there.read(checkpoints.TAIL_BYTES))
