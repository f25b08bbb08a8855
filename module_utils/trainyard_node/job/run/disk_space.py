# SPDX-License-Identifier: Apache-2.0
"""Check whether a job can write into its folder on this node."""

from __future__ import annotations

import os
from pathlib import Path


def full(job_dir: Path, host: str, unsaved: str) -> str:
    """Return that the file system of a job's folder is full, or why a file there is `unsaved`; else ""."""
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
