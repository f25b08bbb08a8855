# SPDX-License-Identifier: Apache-2.0
"""Read how far Podman is with an image, by the files that grow: Podman itself tells it on terminals alone."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ...trainyard.software.pip_progress import DOWNLOAD, UNPACK
from ..machine.files import files_below, newest_own
from .environment_progress import unpacked
from .image_build import SAVING, TEMPORARY, WORK
from .podman import being_pulled, podman

# Seconds for Podman to name its folder.
_LIMIT_S = 10.0


def read(path: str, file: str) -> dict[str, Any] | None:
    """Return how far it is (pip_progress.INSTALLING), None where that cannot be told.

    The image gets an environment at `path`, and becomes an archive `file`, or none. Without a path its base is pulled.
    """
    if not path:
        pulled = being_pulled(TEMPORARY)
        return _record(DOWNLOAD, "base of the image", [pulled], 0, pulled) if pulled else None
    if file and (saving := newest_own(Path(file).parent.glob(f"{SAVING}*"))):
        return _record(DOWNLOAD, Path(file).name, [saving], 0, saving)
    work = newest_own(Path(TEMPORARY).glob(f"{WORK}*"))
    if work is None:
        return None
    fetch, wheels = work / "fetch", work / "context" / "wheels"
    if not wheels.is_dir():
        # pip puts them into their folder when it has all of them.
        return _record(DOWNLOAD, "wheels", [fetch, *_layers("tmp/pip-*", fetch)], 0, fetch)
    libraries = _layers(f"{path.lstrip('/')}/lib", wheels)
    return _record(UNPACK, "", libraries, unpacked(wheels.glob("*.whl")), wheels)


def _layers(pattern: str, since: Path) -> list[Path]:
    """Return the folders of that name in layers of images and containers that have changed since a folder was made."""
    output = podman("info", "--format", "{{.Store.GraphRoot}}", timeout=_LIMIT_S).output
    begun = since.stat().st_mtime
    found = Path(output.strip().rpartition("\n")[2]).glob(f"overlay/*/diff/{pattern}")
    return [folder for folder in found if folder.stat().st_ctime >= begun]


def _record(phase: int, file: str, folders: Iterable[Path], total: int, begun: Path) -> dict[str, Any]:
    done = sum(found.st_size for folder in folders for _, found in files_below(folder))
    step = {"phase": phase, "file": file[:250], "number": 0, "done": done, "total": total}
    return {**step, "seconds": round(max(0.0, time.time() - begun.stat().st_mtime), 1)}
