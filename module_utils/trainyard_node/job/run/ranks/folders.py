# SPDX-License-Identifier: Apache-2.0
"""The folders of all jobs on this node, as far as other jobs and clean.yml must know them.

Each function but the first reads this node's part of the folder of one job, as the job's user (job_folder.py).
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from .....trainyard.base.shapes import Whole
from .....trainyard.job.record import job_ids
from .....trainyard.job.record.folder_layout import HOSTS, SOURCE, common_dir
from ....machine import as_user
from ....machine.checked_files import read_checked
from ....machine.json_files import end_of, read_json
from ....machine.tree import size_of
from ...record import node_plan
from ...record.node_plan import MACHINE
from . import process_table

Record = dict[str, Any]
# What other jobs read of the plan of a head.
_OF_HEAD = {
    "node_rank": int,
    **dict.fromkeys(("port", "monitor_port"), Whole(65535)),
    "?host": str,
    "?candidates": [[str]],
}
# Upper bounds: the parts of a job's folder, and the length of a machine's name.
_MAX_PARTS, _MAX_NAME = 100_000, 256
# No agent takes longer to fill the folder of a job, in seconds.
MADE_S = 3600.0


def jobs_of(job_dir: str | Path) -> Path:
    """Return the folder of all jobs."""
    return Path(common_dir(str(job_dir))).parent


def id_of(job_dir: str | Path) -> str:
    """Return the job of a folder: what its folder is called."""
    return Path(common_dir(str(job_dir))).name


def of_jobs(jobs: Path) -> list[Path]:
    """Return this machine's parts of the folders below `jobs` that may be those of jobs, by their names.

    A folder without parts is an older version's, or was left by an agent that was killed.
    """
    owner = as_user.owner_of(jobs, mounted=True) if jobs.is_dir() else None
    names = as_user.run(owner, os.listdir, jobs) if owner else []
    folders = [jobs / name for name in sorted(names) if job_ids.is_valid(name)]
    parts = as_user.in_each(folders, _parts)
    return [folder / part for folder in folders for part in parts.get(folder, [""])]


def _parts(folder: Path) -> list[str]:
    """Return the parts of this machine, and those that are no machine's yet."""
    try:
        names = sorted(path.name for path in (folder / HOSTS).iterdir())
    except (FileNotFoundError, NotADirectoryError):
        names = []
    if not names:
        return [""]
    known = {name: end_of(folder / HOSTS / name / MACHINE, _MAX_NAME) for name in names[:_MAX_PARTS]}
    return [f"{HOSTS}/{name}" for name, machine in known.items() if machine in ("", os.uname().nodename)]


def record(folder: Path) -> Record | None:
    """Return when something was reported here last, the size in bytes, whether a monitor runs; None without a job."""
    plan = Path(node_plan.plan_path(folder))
    if not isinstance(read_json(plan), dict):
        return _half_made(folder)
    reports = [plan, *(folder / name for name in ("monitor.json", "cluster.json"))]
    return _record(folder, [path for path in reports if path.exists()], process_table.monitor_alive(folder))


def _half_made(folder: Path) -> Record | None:
    """Return the same of a folder whose agent was killed before it wrote node_plan.json.

    None for what no agent made, and for what one may still be making.
    """
    entries = list(folder.iterdir())
    names = {path.name for path in entries}
    found = _record(folder, [folder, *entries])
    names -= {MACHINE, SOURCE, HOSTS}
    ours = names <= set(node_plan.FOLDERS) or names >= set(node_plan.FOLDERS)
    return found if ours and time.time() - found["written"] >= MADE_S else None


def record_of_scheduler(folder: Path) -> Record:
    """Return the same of the folder of a scheduler's job, where our monitor writes nothing."""
    return _record(folder, [folder, *folder.glob("logs/*"), *folder.glob("exits/*")])


def _record(folder: Path, paths: list[Path], alive: bool = False) -> Record:
    written = max(path.lstat().st_mtime for path in paths)
    # The last part of a folder stands for all of it.
    common = Path(common_dir(str(folder)))
    alone = common == folder or len(list(folder.parent.iterdir())) == 1
    return {"written": written, "size": size_of(common if alone else folder), "alive": alive}


def held_devices(folder: Path) -> list[int] | None:
    """Return the devices of a job that runs; None where it does not."""
    plan = read_checked(node_plan.plan_path(folder), {"devices": [int]})
    return list(plan["devices"]) if plan and process_table.monitor_alive(folder) else None


def held_ports(folder: Path) -> list[int] | None:
    """Return the ports of a job that runs and whose head is or may be here, even before it listens; else None."""
    plan = read_checked(node_plan.plan_path(folder), _OF_HEAD)
    heads = plan is not None and (plan["node_rank"] == 0 or may_lead(plan)) and process_table.monitor_alive(folder)
    return [plan["port"], plan["monitor_port"]] if plan and heads else None


def may_lead(plan: Record) -> bool:
    """Return whether this node is among those that may lead the job."""
    return any(host == plan.get("host") for host, *_ in plan.get("candidates", ()))
