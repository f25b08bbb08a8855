# SPDX-License-Identifier: Apache-2.0
"""The folder of a run on the controller, and the source that is sent from there."""

from __future__ import annotations

import io
import json
import tarfile
import time
from pathlib import Path
from typing import Any

# The archive travels inside a module call. Training scripts are kilobytes; data has its own role.
MAX_SOURCE = 16 << 20
LEFT_OUT = {"__pycache__", ".git", ".venv", ".mypy_cache", ".ruff_cache"}


def source_files(folder: Path) -> list[str] | None:
    """List the files of the source folder, relative to it; None when there is no such folder."""
    if not folder.is_dir():
        return None
    return sorted(
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and not LEFT_OUT & set(path.relative_to(folder).parts)
    )


def pack(folder: Path, files: list[str]) -> bytes:
    """Pack the source as tar.gz, without the controller's users."""
    content = io.BytesIO()

    def anonymous(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.uid = info.gid = 0
        info.uname = info.gname = "root"
        return info

    # A link may lead out of the folder, where the node has nothing: its target is sent.
    with tarfile.open(fileobj=content, mode="w:gz", compresslevel=3, dereference=True) as archive:
        for name in files:
            archive.add(folder / name, arcname=name, filter=anonymous)
    return content.getvalue()


def new_run(runs_dir: Path, name: str) -> tuple[str, Path]:
    """Make the folder of a new run; a second run within the same second gets a number."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    runs_dir.mkdir(parents=True, exist_ok=True)
    for number in range(1, 1000):
        job_id = f"{name}-{stamp}" + (f"-{number}" if number > 1 else "")
        try:
            (runs_dir / job_id).mkdir()
        except FileExistsError:
            continue
        return job_id, runs_dir / job_id
    raise OSError(f"a thousand runs of {name} within one second in {runs_dir}")


def read_plans(runs_dir: Path) -> list[dict[str, Any]]:
    """Read the plans of all jobs that were started, oldest first.

    A plan that --check made, or that stands beside findings, was never started: it is no run.
    """
    plans = []
    for path in runs_dir.glob("*/plan.json"):
        try:
            plan = json.loads(path.read_text())
            is_plan = isinstance(plan, dict) and "job_id" in plan
            if is_plan and not plan.get("check") and not path.with_name("findings.json").exists():
                plans.append((path.stat().st_mtime, plan))
        except (OSError, ValueError):
            continue
    return [plan for _, plan in sorted(plans, key=lambda item: (item[0], item[1]["job_id"]))]


def read_submitted(runs_dir: Path, job_id: str) -> dict[str, Any]:
    """Read what was noted when an engine had taken the job; {} where none has. `removed`: nothing of it is left."""
    try:
        found = json.loads((runs_dir / job_id / "submitted.json").read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def engine_of(plan: dict[str, Any], runs_dir: Path) -> dict[str, Any]:
    """Return which engine runs the job, what it calls it, and what its module needs to know of it."""
    known = {name: plan[name] for name in ("world_size", "rank_log", "progress_pattern")}
    engine_id = read_submitted(runs_dir, plan["job_id"]).get("engine_id", "")
    return {**plan["engine"], **known, "engine_id": engine_id}


def engine_runs(runs_dir: Path) -> list[dict[str, Any]]:
    """Return the runs that an engine has taken and of which something may be left; `planned` is their plan's time."""
    return [
        {
            **engine_of(plan, runs_dir),
            "job_id": plan["job_id"],
            "job_dir": plan["job_dir"],
            "planned": (runs_dir / plan["job_id"] / "plan.json").stat().st_mtime,
        }
        for plan in read_plans(runs_dir)
        if "engine" in plan
        for submitted in [read_submitted(runs_dir, plan["job_id"])]
        if submitted and not submitted.get("removed")
    ]
