# SPDX-License-Identifier: Apache-2.0
"""Check whether a job has its folder on this node, and can write into it and into shared memory."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from ....machine.json_files import write_json
from ...record.node_plan import plan_path

if TYPE_CHECKING:
    # Queries about a job load this module, and need no messages.
    from .....trainyard.base.shapes import Message

SHARED = "/dev/shm"  # noqa: S108 - as the system has it
# Messages of PyTorch, NCCL and Python about shared memory; not Triton's, about that of a GPU.
_OF_SHARED = re.compile(r"(?<!out of resource: )[Ss]hared memory|/dev/shm|</torch_\d|\b[Bb]us error\b")


def full(job_dir: Path, host: str, unsaved: str) -> str:
    """Return that the file system of a job's folder, or shared memory, is full, or why a file is `unsaved`; else ""."""
    return "; ".join(filter(None, [_full_folder(job_dir, host, unsaved), shared_memory(host)]))


def shared_memory(host: str, error: str | None = None) -> str:
    """Return that the node's shared memory is full, or how much is used where an error is one of it; else "".

    A rank that failed for want of it may have set free what it had.
    """
    try:
        state = os.statvfs(SHARED)
    except OSError:
        return ""
    free_mib, all_mib = (blocks * state.f_frsize >> 20 for blocks in (state.f_bavail, state.f_blocks))
    if not free_mib and all_mib:
        return f"{SHARED} on {host} is full: {all_mib} of {all_mib} MiB"
    if error is None or not _OF_SHARED.search(error):
        return ""
    return f"{SHARED} on {host}: {all_mib - free_mib} of {all_mib} MiB are used now"


def _full_folder(job_dir: Path, host: str, unsaved: str) -> str:
    try:
        state = os.statvfs(job_dir)
    except OSError:
        return ""
    free_mib, all_mib = (blocks * state.f_frsize >> 20 for blocks in (state.f_bavail, state.f_blocks))
    short = "" if free_mib else f"0 MiB free of {all_mib} MiB"
    # Some file systems, such as Btrfs, have no number of inodes.
    if state.f_files and not state.f_favail:
        short = f"0 inodes free of {state.f_files}"
    if short:
        do = "make room there, or choose another folder with trainyard_state"
        return f"found {short} under {job_dir} on {host}, expected room for what the job writes: {do}"
    return f"{job_dir} on {host} cannot be written: {unsaved}" if unsaved else ""


def gone(job_dir: Path, host: str) -> Message | None:
    """Return the failure of a node on which somebody removed or renamed the job's folder; None where it is there."""
    try:
        os.stat(plan_path(job_dir))  # noqa: PTH116 (the path is text)
    except (FileNotFoundError, NotADirectoryError):
        return {"kind": "folder_gone", "host": host, "folder": str(job_dir)}
    except OSError:
        # A network file system that does not answer may have it still.
        return None
    return None


def make_again(job_dir: Path, node_plan: Message) -> None:
    """Make the folder of a job again, with its plan and no secrets: how it ended is written there."""
    with contextlib.suppress(OSError):
        # Those above it, too: mkdir gives them other rights than itself.
        for folder in (*reversed([above for above in job_dir.parents if not above.exists()]), job_dir):
            folder.mkdir(mode=0o700, exist_ok=True)
        write_json(plan_path(job_dir), {**node_plan, "token": "", "secret_env": {}}, 0o600)
