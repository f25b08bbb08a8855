# SPDX-License-Identifier: Apache-2.0
"""Remove this node's part of a job's folder, and all of it where no other node has a part (folder_layout.py).

As the job's user, and what that user may not remove by a descriptor, as the user may put links in its place.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from ....trainyard.job.record.folder_layout import common_dir
from ...machine import as_user, mounts, private
from ...machine.as_user import JobError
from ...machine.json_files import read_json
from ..record.node_plan import plan_path
from .job_folder import MODE


def remove(job_dir: Path) -> bool:
    """Remove this node's part of a job's folder, and all of it where no other node has a part.

    Return whether there was any. Raises JobError when something stays.
    """
    common = Path(common_dir(str(job_dir)))
    owner = as_user.owner_of(common)
    if owner is None:
        # A file system of its user may be closed to root.
        if common.parent.is_dir() and common in common.parent.iterdir():
            raise _no_folder_of_ours(common)
        return False
    if owner.uid or os.geteuid():
        try:
            if as_user.run(owner, _remove_own, common, job_dir):
                return True
        except (JobError, OSError):
            if os.geteuid():
                raise
    # For example files of a container's root, and jobs that run as root.
    while os.path.lexists(common):
        # Another node may be removing it, too.
        with contextlib.suppress(FileNotFoundError):
            if _remove_as_root(common, job_dir):
                break
    return True


def _others(common: Path, job_dir: Path) -> bool:
    """Return whether other nodes have parts of a job's folder."""
    if common == job_dir or common.is_symlink() or job_dir.parent.is_symlink():
        return False
    with contextlib.suppress(OSError):
        parts = [part for part in job_dir.parent.iterdir() if part.is_dir() and not part.is_symlink()]
        return any(part != job_dir for part in parts)
    return False


def _remove_own(common: Path, job_dir: Path) -> bool:
    """Remove the part of a node, and all where it was the last; return whether other nodes have parts."""
    if common != job_dir and not common.is_symlink() and not job_dir.parent.is_symlink():
        # It may be gone, or its user may have put something else there.
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            _remove_tree(job_dir)
    if _others(common, job_dir):
        return True
    # Two nodes that remove their parts at once may both come here.
    while os.path.lexists(common):
        with contextlib.suppress(FileNotFoundError):
            _remove_tree(common)
    return False


def _remove_tree(job_dir: Path) -> None:
    if job_dir.is_symlink():
        job_dir.unlink()
        return
    # A job may remove permissions, or unpack files without them.
    job_dir.chmod(MODE)
    for folder, names, _ in os.walk(job_dir):
        for name in names:
            path = Path(folder, name)
            if not path.is_symlink():
                path.chmod(MODE)
    shutil.rmtree(job_dir)


def _remove_as_root(common: Path, job_dir: Path) -> bool:
    """Do the same by descriptors, after checking that the folder is that of this job."""
    with _opened(common) as folder:
        if os.fstat(folder).st_dev != common.parent.stat().st_dev:
            raise _no_folder_of_ours(common)
        part = Path(f"/proc/self/fd/{folder}") / job_dir.relative_to(common)
        if not private.only_root_changes(common.parent) and not _is_roots(part, common.name):
            raise JobError(
                f"{common} has files that are not its user's, and {common.parent} is not root's: remove it by hand, "
                "and run site.yml"
            )
        if common != job_dir and _is_folder(job_dir.parent.name, folder):
            with _opened(job_dir.parent.name, folder) as parts:
                _clear(parts, [job_dir.name])
                if any(_is_folder(name, parts) for name in os.listdir(parts)):  # noqa: PTH208
                    return True
        _clear(folder, os.listdir(folder))  # noqa: PTH208 (of a descriptor)
    common.rmdir()
    return False


@contextlib.contextmanager
def _opened(folder: Path | str, above: int | None = None) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _is_folder(name: str, above: int) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return stat.S_ISDIR(os.lstat(name, dir_fd=above).st_mode)
    return False


def _clear(folder: int, names: Sequence[str]) -> None:
    """Remove these from an open folder."""
    for name in names:
        if _is_folder(name, folder):
            shutil.rmtree(f"/proc/self/fd/{folder}/{name}")
        else:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)


def _no_folder_of_ours(job_dir: Path) -> JobError:
    return JobError(
        f"{job_dir} is a file system of its own; expected a folder on that of {job_dir.parent}: unmount it (umount "
        f"{job_dir}), then remove the job again"
    )


def _is_roots(folder: Path, job_id: str) -> bool:
    """Return whether the folder is that of a job that ran as root."""
    plan = plan_path(folder)
    node_plan = read_json(plan)
    return isinstance(node_plan, dict) and node_plan.get("job_id") == job_id and not mounts.owner(os.lstat(plan))
