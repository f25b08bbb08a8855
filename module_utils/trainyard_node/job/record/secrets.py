# SPDX-License-Identifier: Apache-2.0
"""Keep the secrets of a job out of its logs: mask them when logs are read, and in the logs when the job ends.

While the job runs, node_plan.json has the values. At its end they are removed there, after the logs were masked. Ranks
write their logs themselves, so nothing can mask them earlier.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
from pathlib import Path
from typing import Any

from ....trainyard.base.shapes import misfit, path_inside
from ....trainyard.job.record.masking import Forms, forms, mask, places
from ...machine.json_files import overwrite, read_json, write_json
from .metrics_file import metrics_file
from .node_plan import plan_path

# Bytes at the end and the beginning of a log that are masked: as much as job_log_limit_mib may collect, and as much as
# is searched for NCCL's lines.
MAX_BYTES, FIRST_BYTES = 1 << 30, 4 << 20


def read_masked(log: Any, begin: int, size: int, hidden: Forms) -> bytes:
    """Read `size` bytes of a log from `begin` on, masked, including a secret that begins earlier."""
    before = min(begin, len(hidden[0]) if hidden else 0)
    log.seek(begin - before)
    content: bytes = log.read(before + size)
    return mask(content, hidden)[before:]


def mask_logs(job_dir: Path, hidden: Forms) -> None:
    """Mask secrets in the logs of a job that has ended, in place, which works on a full disk."""
    for path in sorted((job_dir / "logs").glob("*.log")) if hidden else ():
        with contextlib.suppress(OSError, ValueError):
            _mask_file(path, hidden)


def _mask_file(path: Path, hidden: Forms) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "r+b", buffering=0) as log:
        size = os.fstat(descriptor).st_size
        spans = [(0, size)] if size <= MAX_BYTES + FIRST_BYTES else [(0, FIRST_BYTES), (size - MAX_BYTES, size)]
        for begin, end in spans:
            # A map must begin at a multiple of this.
            begin -= begin % mmap.ALLOCATIONGRANULARITY
            # Read only: writing to the map of a file that was truncated meanwhile would kill this process.
            with mmap.mmap(descriptor, end - begin, offset=begin, access=mmap.ACCESS_READ) as content:
                found = sorted(places(content, hidden))
            for at, to in found:
                log.seek(begin + at)
                log.write(b"*" * (to - at))


def forget_secrets(job_dir: str | os.PathLike[str]) -> None:
    """Remove the secrets from node_plan.json, and the secret files, even on a full disk.

    The logs are masked first. The metrics file of the job is removed, too.
    """
    path = plan_path(job_dir)
    node_plan = read_json(path)
    if not isinstance(node_plan, dict):
        return
    # Its secrets go, however damaged the rest of the file is.
    files = node_plan.get("secret_files")
    names = [name for name in files if not misfit(name, path_inside)] if isinstance(files, list) else []
    if node_plan.get("token") or node_plan.get("secret_env"):
        mask_logs(Path(job_dir), forms(node_plan))
        rest = {**node_plan, "token": "", "secret_env": {}}
        try:
            write_json(path, rest, mode=0o600)
        except OSError:
            try:
                overwrite(path, json.dumps(rest) + "\n")
            except OSError:
                # A file that still has secrets must not stay.
                os.unlink(path)
    for name in names:
        with contextlib.suppress(FileNotFoundError, IsADirectoryError):
            os.unlink(f"{job_dir}/{name}")
    if node_plan.get("metrics_folder") and not misfit(node_plan, {"metrics_folder": str, "job_id": str}):
        # Its monitor removes it, unless it was killed.
        with contextlib.suppress(OSError, ValueError):
            os.unlink(metrics_file(node_plan["metrics_folder"], node_plan["job_id"]))
