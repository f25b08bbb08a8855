# SPDX-License-Identifier: Apache-2.0
"""The runs that this controller has started: which one is meant, and where it stands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..trainyard.job import run_record, runs
from ..trainyard_node.job.exits import read_json
from .run_folder import read_plans, scheduler_of


def find(runs_dir: Path, job_id: str = "", job_name: str = "", *, must_name: bool = False) -> dict[str, Any]:
    """Return the run that is meant: job_id, job_dir, run_dir, `over` (its record is final), `engine` (its scheduler).

    Without both names it is the newest of all, unless one `must_name` it. Raises LookupError with what there is.
    """
    plan, complaint = runs.find(read_plans(runs_dir), job_id, job_name, must_name, str(runs_dir))
    if plan is None:
        raise LookupError(complaint)
    run_dir = runs_dir / plan["job_id"]
    return {
        "job_id": plan["job_id"],
        "job_dir": plan["job_dir"],
        "run_dir": str(run_dir),
        "over": run_record.is_final(run_record.read(read_json(run_dir / "summary.json"))),
        "engine": scheduler_of(dict(plan), runs_dir) if "engine" in plan else {},
    }
