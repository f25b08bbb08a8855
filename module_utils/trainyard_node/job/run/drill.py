# SPDX-License-Identifier: Apache-2.0
"""Kill ranks for a drill, and keep its folder of checkpoints. All of it runs as the training user."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Any

from ....trainyard.job.drill.drill_settings import FOLDER
from ....trainyard.job.run.measure import checkpoints
from ...machine.as_user import JobError
from .evidence import stack_samples
from .evidence.checkpoint_poll import poll
from .job_folder import read_node_plan
from .ranks import process_table


def kill(job_dir: Path, every: bool) -> dict[str, Any] | None:
    """Kill the last rank here, or every process of the ranks here with what starts them; None without a job."""
    node_plan = read_node_plan(job_dir)
    if node_plan is None:
        return None
    ranks = stack_samples.of_job(job_dir, node_plan)
    pids = [rank.pid for rank in ranks[-1:]]
    if every:
        pids = process_table.ranks_of_job(node_plan["job_id"], job_dir, node_plan.get("unit", ""))
    killed = 0
    for pid in pids:
        started = process_table.start_time(pid)
        if started is not None and pid != os.getpid():
            process_table.send(pid, started, signal.SIGKILL)
            killed += 1
    return {"ranks": [rank.rank for rank in (ranks if every else ranks[-1:])], "processes": killed}


def make(path: str) -> bool:
    """Make a folder and those above it; on a shared disk another node may have made it. Raises JobError."""
    there = Path(path)
    new = not there.is_dir()
    try:
        there.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise JobError(f"{path} cannot be made: {error.strerror or error}") from error
    return new


def remove(path: str) -> bool:
    """Remove the folder of a drill; another one is never removed. Raises JobError."""
    there = Path(path)
    if not FOLDER.search(there.name) or ".." in there.parts:
        raise JobError(f"{path} is no folder of a drill")
    if there.is_symlink() or not there.is_dir():
        return False
    # On a shared disk other nodes remove it at the same time.
    shutil.rmtree(there, ignore_errors=True)
    if there.exists():
        raise JobError(f"{path} could not be removed: remove it by hand")
    return True


def newest(pattern: str) -> list[str]:
    """Return the names of the newest checkpoints that are not known to be incomplete, oldest first."""
    try:
        found = poll(pattern)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise JobError(f"{pattern}: {error.strerror or error}") from error
    return [sample.name for sample in found if not sample.problem and not checkpoints.is_temporary(sample.name)]
