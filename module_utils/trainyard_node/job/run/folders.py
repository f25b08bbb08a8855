# SPDX-License-Identifier: Apache-2.0
"""The folders of all jobs on this node, as far as other jobs and clean.yml must know them.

Each function but the first reads the folder of one job, as the job's user (folder.py).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ....trainyard.findings.shapes import Whole
from ....trainyard.job.record import job_id
from ...machine import as_user
from ...machine.checked_files import read_checked
from ...machine.json_files import read_json
from ...machine.tree import size_of
from ..record import node_plan
from . import processes

Record = dict[str, Any]
# What other jobs read of the plan of a head.
_OF_HEAD = {
    "node_rank": int,
    **dict.fromkeys(("port", "monitor_port"), Whole(65535)),
    "?host": str,
    "?candidates": [[str]],
}
# No agent takes longer to fill the folder of a job, in seconds.
MADE_S = 3600.0


def of_jobs(jobs: Path) -> Iterator[Path]:
    """Return the folders below `jobs` that may be those of jobs, by their names."""
    owner = as_user.owner_of(jobs, mounted=True) if jobs.is_dir() else None
    names = as_user.run(owner, os.listdir, jobs) if owner else []
    return (jobs / name for name in sorted(names) if job_id.is_valid(name))


def record(folder: Path) -> Record | None:
    """Return when something was reported here last, the size in bytes, whether a monitor runs; None without a job."""
    plan = Path(node_plan.path(folder))
    if not isinstance(read_json(plan), dict):
        return _half_made(folder)
    reports = [plan, *(folder / name for name in ("monitor.json", "cluster.json"))]
    return _record(folder, [path for path in reports if path.exists()], processes.monitor_alive(folder))


def _half_made(folder: Path) -> Record | None:
    """Return the same of a folder whose agent was killed before it wrote node_plan.json.

    None for what no agent made, and for what one may still be making.
    """
    entries = list(folder.iterdir())
    names = {path.name for path in entries}
    found = _record(folder, [folder, *entries])
    ours = names <= set(node_plan.FOLDERS) or names >= set(node_plan.FOLDERS)
    return found if ours and time.time() - found["written"] >= MADE_S else None


def record_of_scheduler(folder: Path) -> Record:
    """Return the same of the folder of a scheduler's job, where our monitor writes nothing."""
    return _record(folder, [folder, *folder.glob("logs/*"), *folder.glob("exits/*")])


def _record(folder: Path, paths: list[Path], alive: bool = False) -> Record:
    written = max(path.lstat().st_mtime for path in paths)
    return {"written": written, "size": size_of(folder), "alive": alive}


def held_devices(folder: Path) -> list[int] | None:
    """Return the devices of a job that runs; None where it does not."""
    plan = read_checked(node_plan.path(folder), {"devices": [int]})
    return list(plan["devices"]) if plan and processes.monitor_alive(folder) else None


def held_ports(folder: Path) -> list[int] | None:
    """Return the ports of a job that runs and whose head is or may be here, even before it listens; else None."""
    plan = read_checked(node_plan.path(folder), _OF_HEAD)
    heads = plan is not None and (plan["node_rank"] == 0 or may_lead(plan)) and processes.monitor_alive(folder)
    return [plan["port"], plan["monitor_port"]] if plan and heads else None


def may_lead(plan: Record) -> bool:
    """Return whether this node is among those that may lead the job."""
    return any(host == plan.get("host") for host, *_ in plan.get("candidates", ()))
