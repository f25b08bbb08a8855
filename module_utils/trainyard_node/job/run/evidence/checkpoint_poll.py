# SPDX-License-Identifier: Apache-2.0
"""Poll a job's checkpoints from the monitor of the node with rank 0, with the rights of the job's user.

Polls run in a thread, as a network file system may block one for minutes. At most one poll waits; polls take at most a
twentieth of the time.
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
import stat
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .....trainyard.base.shapes import as_time
from .....trainyard.job.record.folder_layout import common_dir
from .....trainyard.job.run.measure import checkpoints
from .....trainyard.job.run.measure.checkpoints import History, Sample
from ....machine.json_files import open_regular
from .checkpoint_aside import Aside

# Seconds between two polls; a poll that takes longer than a twentieth of that delays the next one.
POLL_S, SHARE = 2.0, 20
# A poll that takes longer, in seconds, is reported.
LATE_S = 30.0
# Longest poll as an attempt ends, in seconds, while all nodes wait for what follows.
LAST_POLL_S = 0.5
# Upper bounds for one poll: entries of folders, inspected matches, files of a folder, files whose format is read.
MAX_ENTRIES, MAX_MATCHES, MAX_FILES, MAX_FORMS = 200_000, 1000, 20_000, 64
MAX_DEPTH = 16
_SIGNS = "*?["


class Watch:
    """Polls a folder or pattern of checkpoints."""

    def __init__(self, job_dir: Path, pattern: str) -> None:
        """Poll `pattern`, relative to the folder of the job that nodes may share; "" polls nothing."""
        self._common, self._pattern, self._polls = Path(common_dir(str(job_dir))), "", False
        self._begin()
        self._began: float | None = None
        self._requested = threading.Event()
        self._done = threading.Event()
        self._aside = Aside(job_dir)
        # The order to set checkpoints aside, the answer to the last one, and checkpoints that get their names back.
        self._ordered: Mapping[str, Any] | None = None
        self._obeyed: dict[str, Any] = {}
        self._to_restore: Sequence[Mapping[str, Any]] = ()
        # The current attempt, its begin (seconds since the epoch), whether it runs, and whether rank 0 ended by itself.
        self.attempt, self.attempt_began, self.running, self.left_well = 0, 0.0, False, False
        self.watch(pattern)

    def _begin(self) -> None:
        self._history = History()
        self._known: dict[str, Any] = {"newest": None, "unfinished": None, "problem": ""}
        self._polled = False

    def watch(self, pattern: str) -> None:
        """Poll `pattern` from now on: another node may have rank 0 now, or this one."""
        place = str(self._common / pattern) if pattern else ""
        if place == self._pattern:
            return
        self._begin()
        self._pattern = place
        self._requested.set()
        if not self._polls:
            self._polls = True
            threading.Thread(target=self._watch, name="checkpoints", daemon=True).start()

    def state(self) -> dict[str, Any] | None:
        """Return the state of the checkpoints, None before the first poll and without a pattern."""
        began = self._began
        waits_s = time.monotonic() - began if began is not None else 0.0
        if waits_s > LATE_S:
            late = f"{self._pattern} does not answer: a poll waits for {round(waits_s)} s"
            return {**self._known, "problem": late}
        return self._known if self._polled and self._pattern else None

    def poll_now(self, seconds: float) -> None:
        """Poll now, and wait for that at most `seconds`."""
        if self._pattern:
            self._done.clear()
            self._requested.set()
            self._done.wait(seconds)

    def set_aside(self, order: Mapping[str, Any] | None) -> None:
        """Set checkpoints aside before an attempt, by the head's order (messages.py); the state has the answer."""
        if order and order != self._ordered:
            self._ordered = order
            self._requested.set()

    def restore(self, checkpoints_aside: Sequence[Mapping[str, Any]], seconds: float) -> None:
        """Give checkpoints their names back; wait for that at most `seconds`."""
        self._to_restore, until = checkpoints_aside, time.monotonic() + seconds
        while self._pattern and self._to_restore and time.monotonic() < until:
            self.poll_now(0.2)

    def _obey(self) -> None:
        """Set aside or restore what was ordered since the last poll."""
        order, back = self._ordered, self._to_restore
        if order and order["attempt"] != self._obeyed.get("attempt"):
            problem = ""
            for checkpoint in order["checkpoints"]:
                try:
                    problem = problem or self._aside.set_aside(checkpoint, found_at(self._pattern))
                except OSError as error:
                    problem = error.strerror or str(error)
            self._obeyed = {"attempt": order["attempt"], "problem": problem[:300]}
        if back:
            problem = self._aside.restore(back)
            self._obeyed, self._to_restore = {"attempt": self.attempt, "problem": problem[:300]}, ()

    def _watch(self) -> None:
        while True:
            self._requested.clear()
            if not self._pattern:
                self._requested.wait()
                continue
            self._began = begun = time.monotonic()
            self._obey()
            now = self.attempt, self.attempt_began, self.running, self.left_well
            try:
                samples, problem = poll(self._pattern), ""
                known = self._history.add(samples, *now)
            except OSError as error:
                known, problem = {}, f"{self._pattern}: {error.strerror or error}"
            obeyed = {"aside": self._obeyed} if self._obeyed else {}
            self._known, self._polled = {**self._known, **known, **obeyed, "problem": problem[:300]}, True
            self._began = None
            self._done.set()
            self._requested.wait(max(POLL_S, SHARE * (time.monotonic() - begun)))


def poll(pattern: str) -> list[Sample]:
    """Return the newest checkpoints in a folder, or that match a pattern. Raises OSError."""
    times = _times(found_at(pattern))
    by_time = sorted(times, key=lambda path: times[path])
    newest = by_time[-checkpoints.MAX_INSPECTED :]
    # The one before, where each rank has a file of its own for the newest one.
    group = checkpoints.group(newest[-1].name) if newest else None
    others = [path for path in by_time if checkpoints.group(path.name) != group]
    if others and others[-1] not in newest:
        newest.insert(0, others[-1])
    complete, later = _marked([path for path in newest if path.is_dir()])
    samples = []
    for path in newest:
        with contextlib.suppress(OSError):
            samples.append(_inspect(path, path in complete, path in later))
    return samples


def found_at(pattern: str) -> list[Path]:
    """Return the paths of checkpoints in a folder, or that match a pattern, by name. Raises OSError."""
    place = Path(pattern)
    if any(sign in pattern for sign in _SIGNS):
        found = list(_matches(place))
    elif place.is_dir():
        found = [place / name for name in _names(place, [MAX_ENTRIES]) if checkpoints.is_checkpoint_name(name)]
    else:
        place.lstat()
        found = [place]
    found = [path for path in found if not checkpoints.is_aside(path.name)]
    return sorted(found, key=lambda path: checkpoints.natural(path.name))


def _times(found: list[Path]) -> dict[Path, float]:
    """Return when each of these was changed, without links, which are other names of checkpoints."""
    times = {}
    for path in found[-MAX_MATCHES:]:
        # It may have been removed meanwhile.
        with contextlib.suppress(OSError):
            state = path.lstat()
            if stat.S_ISREG(state.st_mode) or stat.S_ISDIR(state.st_mode):
                times[path] = state.st_mtime
    return times


def _matches(pattern: Path) -> Iterator[Path]:
    """Return the paths that match an absolute pattern, part by part."""
    left, folders = [MAX_ENTRIES], [Path(pattern.anchor)]
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
    """Yield the names in a folder, at most as many as are left."""
    with os.scandir(folder) as entries:
        for entry in entries:
            left[0] -= 1
            if left[0] < 0:
                raise OSError(f"more than {MAX_ENTRIES} entries: name fewer with job_checkpoints")
            yield entry.name


def _marked(folders: list[Path]) -> tuple[set[Path], set[Path]]:
    """Return which folders a marker beside them shows as complete, and which it does not name yet."""
    complete: set[Path] = set()
    later: set[Path] = set()
    for parent in {path.parent for path in folders}:
        names = {path.name: path for path in folders if path.parent == parent}
        for marker in checkpoints.MARKERS:
            with contextlib.suppress(OSError), open_regular(parent / marker) as there:
                found = checkpoints.marked(list(names), there.read(256).decode("utf-8", "replace"))
                complete |= {names[name] for name in found[0]}
                later |= {names[name] for name in found[1]}
    return complete, later


def _inspect(path: Path, named: bool, not_named: bool) -> Sample:
    """Inspect one checkpoint. Raises OSError where it was removed."""
    shown = checkpoints.shown_name(path.name)
    problem = "its name says that it is being written" if checkpoints.is_temporary(path.name) else ""
    state = path.lstat()
    if stat.S_ISREG(state.st_mode):
        problem_of_form, sure = _form(path, state.st_size)
        problem = problem or problem_of_form
        return Sample(shown, as_time(state.st_mtime), state.st_size, 1, problem, sure and not problem)
    folders: dict[str, list[str]] = {}
    forms: list[tuple[str, Path, int]] = []
    newest, size, count = state.st_mtime, 0, 0
    for at, name, known in _files(path, "", 0):
        if count >= MAX_FILES:
            break
        if known.st_size or name != checkpoints.STATE_FILE:
            folders.setdefault(at, []).append(name)
        newest, size, count = max(newest, known.st_mtime), size + known.st_size, count + 1
        # Some files are empty on purpose.
        if known.st_size and stat.S_ISREG(known.st_mode) and len(forms) < MAX_FORMS:
            forms.append((f"{at}{name}", path / at / name, known.st_size))
    if not_named:
        problem = problem or checkpoints.NOT_NAMED
    problem_of_folder, sure = checkpoints.folder_problem(folders)
    problem = problem or problem_of_folder or ("" if count else "it is empty")
    for name, file, bytes_of in () if problem else forms:
        found = _form(file, bytes_of)[0]
        problem = problem or (f"{name}: {found}" if found else "")
    return Sample(shown, as_time(newest), size, count, problem, (named or sure) and not problem)


def _files(root: Path, at: str, depth: int) -> Iterator[tuple[str, str, os.stat_result]]:
    """Yield the files of a folder and below: subfolder, name, state. Links are not followed."""
    below = []
    with os.scandir(root / at) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):
                if entry.is_dir(follow_symlinks=False):
                    below.append(entry.name)
                else:
                    yield at, entry.name, entry.stat(follow_symlinks=False)
    for name in below if depth < MAX_DEPTH else ():
        yield from _files(root, f"{at}{name}/", depth + 1)


def _form(path: Path, size: int) -> tuple[str, bool]:
    with open_regular(path) as opened:
        head = opened.read(8)
        if path.suffix == ".safetensors" and len(head) == 8:
            head += opened.read(min(int.from_bytes(head, "little"), checkpoints.HEADER_BYTES))
        opened.seek(max(0, size - checkpoints.TAIL_BYTES))
        return checkpoints.file_problem(path.name, size, head, opened.read(checkpoints.TAIL_BYTES))
