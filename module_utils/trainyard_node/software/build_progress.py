# SPDX-License-Identifier: Apache-2.0
"""Read how far a build from source is: `build.log`, the folder `stage` and what was compiled lie beside the source.

DKMS has its own log in the folder of the source.
"""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

from ...trainyard.software.pip_progress import BUILD, CONFIGURE, INSTALL
from ..machine.files import files_below
from ..machine.json_files import end_of

# What automake, the kernel's Kbuild, and the Makefile of nccl-tests print of a file.
_FILE = re.compile(r"^(?:  [A-Z0-9]+ +(?:\[M\] +)?|Compiling +)(\S+)", re.MULTILINE)
_CHECK = "checking "
# Automake makes a file for the dependencies of each object, and writes into it when the object is compiled.
_DEPENDENCIES, _EMPTY = (".Plo", ".Po"), len("# dummy\n")


def read(source: Path) -> dict[str, Any] | None:
    """Return how far the build is (pip_progress.INSTALLING), None before its log begins."""
    folder = source.parent
    log = end_of(folder / "build.log", 8 << 20) or end_of(source / "make.log")
    if not log:
        return None
    staged = sum(1 for _ in files_below(folder / "stage"))
    if staged:
        return _record(INSTALL, "", staged, 0, (folder / "stage").stat().st_mtime)
    done, total, begun = _compiled(folder)
    if not done:
        checks = sum(line.startswith(_CHECK) for line in log.splitlines())
        return _record(CONFIGURE, "", checks, 0, folder.stat().st_mtime) if checks else None
    return _record(BUILD, (_FILE.findall(log) or [""])[-1], done, total, begun)


def _record(phase: int, file: str, done: int, total: int, begun: float) -> dict[str, Any]:
    step = {"phase": phase, "file": file.rpartition("/")[2][:250], "number": 0, "done": done, "total": total}
    return {**step, "seconds": round(max(0.0, time.time() - begun), 1)}


def _compiled(folder: Path) -> tuple[int, int, float]:
    """Return how many files are compiled, of how many (0: not known), and since when."""
    dependencies, written, objects, sources = 0, list[float](), 0, 0
    for name, found in files_below(folder):
        if name.endswith(_DEPENDENCIES):
            dependencies += 1
            written += [found.st_mtime] if found.st_size > _EMPTY else []
        objects += name.endswith(".o")
        sources += name.endswith(".cu")
    if dependencies:
        return len(written), dependencies, min(written, default=0.0)
    # `make` has made the folder of the objects last.
    return objects, sources, folder.stat().st_mtime
