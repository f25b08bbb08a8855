# SPDX-License-Identifier: Apache-2.0
"""The folder of a run on the controller, and the source that is sent from there."""

from __future__ import annotations

import io
import tarfile
import time
from pathlib import Path

# The archive travels inside a module call. Training scripts are kilobytes; data has its own role.
MAX_SOURCE = 16 << 20
LEFT_OUT = {"__pycache__", ".git", ".venv", ".mypy_cache", ".ruff_cache"}


def source_files(folder: Path) -> list[str] | None:
    """List the files of the source folder, relative to it; None when there is no such folder."""
    if not folder.is_dir():
        return None
    return sorted(
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and not LEFT_OUT & set(path.relative_to(folder).parts)
    )


def pack(folder: Path, files: list[str]) -> bytes:
    """Pack the source as tar.gz, without the controller's users."""
    content = io.BytesIO()

    def anonymous(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.uid = info.gid = 0
        info.uname = info.gname = "root"
        return info

    # A link may lead out of the folder, where the node has nothing: its target is sent.
    with tarfile.open(fileobj=content, mode="w:gz", compresslevel=3, dereference=True) as archive:
        for name in files:
            archive.add(folder / name, arcname=name, filter=anonymous)
    return content.getvalue()


def new_run(runs_dir: Path, name: str) -> tuple[str, Path]:
    """Make the folder of a new run; a second run within the same second gets a number."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    runs_dir.mkdir(parents=True, exist_ok=True)
    for number in range(1, 1000):
        job_id = f"{name}-{stamp}" + (f"-{number}" if number > 1 else "")
        try:
            (runs_dir / job_id).mkdir()
        except FileExistsError:
            continue
        return job_id, runs_dir / job_id
    raise OSError(f"a thousand runs of {name} within one second in {runs_dir}")
