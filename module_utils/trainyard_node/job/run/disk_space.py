# SPDX-License-Identifier: Apache-2.0
"""Check whether a job can write into its folder and into shared memory on this node."""

from __future__ import annotations

import os
import re
from pathlib import Path

SHARED = "/dev/shm"  # noqa: S108 - as the system has it
# Messages of PyTorch, NCCL and Python about shared memory.
_OF_SHARED = re.compile(r"[Ss]hared memory|/dev/shm|</torch_\d|\b[Bb]us error\b")


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
