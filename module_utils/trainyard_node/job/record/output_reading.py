# SPDX-License-Identifier: Apache-2.0
"""Read the files of a job that its user wants at home (job_outputs). That runs with the rights of the job's user."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ...machine.as_user import JobError, in_folder
from ...machine.json_files import open_regular
from .node_plan import source_of

# Upper bounds: files that are sent, files that are named because they are too large, entries that are visited.
MAX_FILES, MAX_NAMED, MAX_VISITED = 1000, 100, 100_000
# Upper bound for a name, in characters; the controller cuts longer texts of nodes.
MAX_NAME = 3000
# The printable characters of ASCII but %, which begins the others.
_PLAIN = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")


def outputs_of(job_dir: Path, patterns: Sequence[str], limit: int) -> dict[str, Any]:
    """Return what read_outputs finds as the folder's owner; patterns that take too long are left out."""
    nothing = {"files": {}, "left_out": [], "more": 0}
    try:
        return dict(in_folder(job_dir, nothing, read_outputs, patterns, limit))
    except JobError as error:
        # Logs and state, which come with the same answer, are worth more.
        return {**nothing, "left_out": [{"name": f"job_outputs ({error})", "size": 0}]}


def read_outputs(job_dir: Path, patterns: Sequence[str], limit: int) -> dict[str, Any]:
    """Return the files that match patterns below the ranks' working folder, or absolute ones.

    `files` are contents in base64 by name, at most `limit` bytes together, the smallest first. `left_out` are `name`
    and `size` of those that did not fit, or `why` else they are not sent. Names are relative to the working folder, or
    absolute, each on one printable line (_printable). Links are no files. `unmatched` are the patterns without a file.
    """
    files: dict[str, str] = {}
    left_out: list[dict[str, Any]] = []
    remaining = limit
    unmatched: list[str] = []
    found = sorted(_found(Path(source_of(job_dir)), patterns, unmatched))
    names = {name for _, name, _ in found}
    for size, own, path in found:
        name = _printable(own)
        why = "another file has the name that it would get" if name != own and name in names else ""
        why = why or ("its name is too long" if len(name) > MAX_NAME else "")
        why = why or (f"beyond the {MAX_FILES} smallest files" if len(files) == MAX_FILES else "")
        if why or size > remaining:
            left_out.append({"name": name[:MAX_NAME], "size": size, **({"why": why} if why else {})})
            continue
        try:
            with open_regular(path) as file:
                content = file.read(size)
        except OSError:
            continue
        files[name] = base64.b64encode(content).decode()
        remaining -= len(content)
    more = max(0, len(left_out) - MAX_NAMED)
    return {"files": files, "left_out": left_out[:MAX_NAMED], "more": more, "unmatched": unmatched}


def _printable(name: str) -> str:
    """Return a name as it is if it is one line of printable text, otherwise with %0A and the like.

    Names that only differ in what nobody can see must not become one.
    """
    return name if name.isprintable() else quote(os.fsencode(name), safe=_PLAIN)


def _found(folder: Path, patterns: Sequence[str], unmatched: list[str]) -> Iterator[tuple[int, str, str]]:
    """Yield size, name and path of each file; add patterns without any to `unmatched`."""
    seen = set()
    for pattern in patterns:
        root = Path("/") if pattern.startswith("/") else folder
        unmatched.append(pattern)
        for path in islice(_files(root, pattern.strip("/")), MAX_VISITED):
            if unmatched[-1:] == [pattern]:
                unmatched.pop()
            name = str(path) if root != folder else str(path.relative_to(folder))
            if name not in seen:
                seen.add(name)
                try:
                    size = path.stat().st_size
                except OSError:
                    # It has disappeared meanwhile.
                    continue
                yield size, name, str(path)


def _files(root: Path, pattern: str) -> Iterator[Path]:
    """Yield the regular files that a pattern matches, and those below folders that it matches."""
    try:
        for path in root.glob(pattern):
            if path.is_symlink():
                continue
            if path.is_file():
                yield path
            elif path.is_dir():
                yield from (each for each in path.rglob("*") if each.is_file() and not each.is_symlink())
    except (OSError, ValueError):
        # No such folder, or no such pattern.
        return
