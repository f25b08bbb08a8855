# SPDX-License-Identifier: Apache-2.0
"""The tickets of launches that wait for devices of this node (trainyard/job/plan/busy_devices.py).

They lie in a folder of this machine beside those of the jobs; each function runs as the owner of all these folders.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ....trainyard.job.plan.busy_devices import FRESH_S, TICKET
from ....trainyard.job.record import job_ids
from ...machine import as_user
from ...machine.checked_files import read_checked
from ...machine.json_files import write_json

# No id of a job has a dot.
FOLDER = ".waiting"
_MAX_BYTES = 64 << 10


def _folder(jobs: Path) -> Path:
    return jobs / FOLDER / os.uname().nodename


def read(jobs: Path) -> dict[str, Any]:
    """Return the tickets that count, by the ids of their jobs."""
    owner = as_user.owner_of(jobs, mounted=True) if jobs.is_dir() else None
    return dict(as_user.run(owner, _read, jobs)) if owner else {}


def renew(jobs: Path, job_id: str, devices: list[int], starts: bool) -> None:
    """Leave or renew the ticket of a job, and remove those that nobody renews."""
    owner = as_user.owner_of(jobs, mounted=True) if jobs.is_dir() else None
    if owner:
        as_user.run(owner, _renew, jobs, job_id, {"devices": devices, "starts": starts})


def _read(jobs: Path) -> dict[str, Any]:
    found = {path.name: read_checked(path, TICKET, _MAX_BYTES) for path, fresh in _tickets(jobs) if fresh}
    return {name: ticket for name, ticket in found.items() if ticket}


def _renew(jobs: Path, job_id: str, ticket: dict[str, Any]) -> None:
    _folder(jobs).mkdir(parents=True, exist_ok=True)
    write_json(_folder(jobs) / job_id, ticket)
    for path, fresh in _tickets(jobs):
        if not fresh:
            path.unlink(missing_ok=True)


def _tickets(jobs: Path) -> Iterator[tuple[Path, bool]]:
    """Return each ticket, and whether it was renewed lately."""
    for path in _folder(jobs).glob("*"):
        with contextlib.suppress(OSError):
            if job_ids.is_valid(path.name):
                yield path, abs(time.time() - path.lstat().st_mtime) < FRESH_S
