# SPDX-License-Identifier: Apache-2.0
"""Set checkpoints of a job aside: rename them beside the others, all files of one or none, and give names back.

The monitor does this with the rights of the job's user, while no rank runs. set_aside.json in the job's folder lists
each renaming before it is done, so that a monitor that comes back after a reboot can complete or undo it. Nothing is
overwritten or deleted, except pointers (`latest`) that this module has written itself.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .....trainyard.base.shapes import Exact, misfit
from .....trainyard.job.run.measure import checkpoints
from ....machine.json_files import open_regular, read_object, write_json

Entry = dict[str, Any]

# Upper bounds: files of one checkpoint, numbers behind a name that is taken.
MAX_FILES, MAX_TRIES = 20_000, 1000
_MOVE = Exact({"old": str, "new": str})
_POINTER = Exact({"path": str, "to": str, "link": bool})
_SHAPE = {"entries": [Exact({"name": str, "time": float, "moves": [_MOVE], "pointers": [_POINTER]})]}


class Aside:
    """The checkpoints of a job that are set aside."""

    def __init__(self, job_dir: Path) -> None:
        """Read what an earlier monitor has set aside."""
        self._file = job_dir / "set_aside.json"
        state = read_object(self._file)
        # The ranks may have written anything.
        self._entries: list[Entry] = [] if misfit(state, _SHAPE) else state["entries"]

    def set_aside(self, checkpoint: Mapping[str, Any], paths: Iterable[Path]) -> str:
        """Set a checkpoint aside that is among `paths`, the checkpoints of the job; return why that failed, or ""."""
        entry = next((each for each in self._entries if _is_of(each, checkpoint)), None)
        before = self._entries
        try:
            if entry is None:
                entry = _planned(checkpoint, list(paths))
                self._keep([*before, entry])
            _rename(entry)
        except OSError as error:
            with contextlib.suppress(OSError):
                self._keep(before)
            name = f"{Path(error.filename).name}: " if isinstance(error.filename, str) else ""
            return f"{name}{error.strerror or error}"
        return ""

    def restore(self, wanted: Sequence[Mapping[str, Any]]) -> str:
        """Give these checkpoints their names back, the last one first; return why that failed, or ""."""
        problem = ""
        for entry in reversed(self._entries):
            if any(_is_of(entry, checkpoint) for checkpoint in wanted):
                try:
                    _restore(entry)
                except OSError as error:
                    problem = problem or error.strerror or str(error)
                    continue
                with contextlib.suppress(OSError):
                    self._keep([each for each in self._entries if each is not entry])
        return problem

    def _keep(self, entries: list[Entry]) -> None:
        write_json(self._file, {"entries": entries})
        self._entries = entries


def _is_of(entry: Entry, checkpoint: Mapping[str, Any]) -> bool:
    return bool(entry["name"] == checkpoint["name"] and entry["time"] == checkpoint["time"])


def _planned(checkpoint: Mapping[str, Any], paths: Sequence[Path]) -> Entry:
    """Return what has to be renamed for a checkpoint; raises OSError where it is not there any more."""
    named = [
        path for path in paths if checkpoints.shown_name(path.name) == checkpoint["name"] and not path.is_symlink()
    ]
    if len(named) > 1:
        named = [path for path in named if _time(path) == checkpoint["time"]]
    if len(named) != 1:
        raise OSError(f"there are {len(named)} of {checkpoint['name']}")
    folder = named[0].parent
    before = folder / checkpoint["before"]
    moved = {named[0], *_parts(named[0])}
    if checkpoint["later"]:
        later = [path for path in paths if path != before and not path.is_symlink() and _is_later(path, checkpoint)]
        moved |= {part for path in later for part in (path, *_parts(path))}
    pointers = list(_pointers(folder, moved, before))
    renamed = sorted(moved) + [Path(pointer["path"]) for pointer in pointers]
    if len(renamed) > MAX_FILES:
        raise OSError(f"more than {MAX_FILES} files")
    moves = [{"old": str(path), "new": _free(path)} for path in renamed]
    return {"name": checkpoint["name"], "time": checkpoint["time"], "moves": moves, "pointers": pointers}


def _is_later(path: Path, checkpoint: Mapping[str, Any]) -> bool:
    place = checkpoints.place_of(checkpoint["name"])
    found = {**checkpoints.place_of(path.name), "time": _time(path)}
    return checkpoints.further(found, {**place, "time": checkpoint["time"]})


def _time(path: Path) -> float:
    with contextlib.suppress(OSError):
        return path.lstat().st_mtime
    return 0.0


def _parts(path: Path) -> set[Path]:
    """Return the other files and folders of the same step beside a checkpoint, as each rank may have its own."""
    group = checkpoints.group(path.name)
    if isinstance(group, str):
        return set()
    with os.scandir(path.parent) as entries:
        return {
            path.parent / entry.name
            for entry in entries
            if checkpoints.group(entry.name) == group
            and not entry.is_symlink()
            and not checkpoints.is_aside(entry.name)
            and not checkpoints.is_temporary(entry.name)
        }


def _pointers(folder: Path, moved: set[Path], before: Path) -> Iterable[Entry]:
    """Yield what names the checkpoint, with its new content: links, `latest` of DeepSpeed, Megatron-LM's number."""
    with os.scandir(folder) as entries:
        found = sorted((entry.name, entry.is_symlink()) for entry in entries)
    for name, is_link in found:
        path, text = folder / name, ""
        if checkpoints.is_aside(name):
            continue
        if is_link:
            text = str(path.readlink())
            points = Path(os.path.normpath(folder / text)) in moved
        elif name in checkpoints.MARKERS:
            with open_regular(path) as file:
                text = file.read(256).decode("utf-8", "replace").strip()
            points = bool(checkpoints.marked([each.name for each in moved], text)[0])
        else:
            continue
        if points and not os.path.lexists(before):
            raise OSError(f"{name} names it, and {before.name} is not beside it")
        if points:
            step = checkpoints.place_of(before.name)["step"]
            to = str(step) if text.isdecimal() and not is_link else str(Path(text).parent / before.name)
            yield {"path": str(path), "to": to, "link": is_link}


def _free(path: Path) -> str:
    """Return a name beside a path that nothing has."""
    for number in range(1, MAX_TRIES):
        name = f"{path}{checkpoints.SUFFIX}" + ("" if number == 1 else f"-{number}")
        if not os.path.lexists(name):
            return name
    raise OSError(f"all names beside {path.name} are taken")


def _rename(entry: Entry) -> None:
    """Rename what is not renamed yet, and write the pointers anew; undo that where it fails."""
    done: list[tuple[Path, Path]] = []
    made: list[Path] = []
    try:
        for old, new in _moves(entry):
            # No rank runs, so that nothing takes the name in between.
            if not os.path.lexists(new):
                old.rename(new)
                done.append((old, new))
        for pointer in entry["pointers"]:
            if not os.path.lexists(pointer["path"]):
                _point(pointer)
                made.append(Path(pointer["path"]))
    except OSError:
        for path in made:
            path.unlink()
        for old, new in reversed(done):
            new.rename(old)
        raise


def _moves(entry: Entry) -> list[tuple[Path, Path]]:
    return [(Path(move["old"]), Path(move["new"])) for move in entry["moves"]]


def _point(pointer: Entry) -> None:
    if pointer["link"]:
        Path(pointer["path"]).symlink_to(pointer["to"])
        return
    descriptor = os.open(pointer["path"], os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    with os.fdopen(descriptor, "w") as file:
        file.write(pointer["to"])


def _is_ours(pointer: Entry) -> bool:
    """Return whether a pointer still is as this module wrote it."""
    to = str(pointer["to"])
    try:
        if pointer["link"]:
            return str(Path(pointer["path"]).readlink()) == to
        with open_regular(pointer["path"]) as file:
            return file.read(1024) == to.encode()
    except OSError:
        return False


def _restore(entry: Entry) -> None:
    """Give all files of a checkpoint their names back; raises OSError, with nothing changed, if one is taken."""
    ours = [Path(pointer["path"]) for pointer in entry["pointers"] if _is_ours(pointer)]
    back = [(old, new) for old, new in reversed(_moves(entry)) if os.path.lexists(new)]
    taken = next((old for old, _ in back if os.path.lexists(old) and old not in ours), None)
    if taken:
        raise OSError(f"{taken.name} exists again")
    for path in ours:
        path.unlink()
    for old, new in back:
        new.rename(old)
