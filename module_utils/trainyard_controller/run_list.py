# SPDX-License-Identifier: Apache-2.0
"""All runs of this controller: the list with what runs now, runs/index.html, and two jobs compared."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..trainyard.findings import state_format
from ..trainyard.findings.findings import UnusableError
from ..trainyard.report import run_list
from .pages import page
from .reporting import read_series
from .run_choice import active
from .run_folder import read_all_plans, write_whole
from .saved_state import NotReadError, read_plan, read_record, read_report
from .scheduler_clients import Ask


def list_runs(runs_dir: Path, ask: Ask | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the chosen runs as `runs` and `text`, and write runs/index.html with all of them.

    `given` are `state`, `name` and `days`. With `ask`, the heads of jobs without a final record report which run.
    """
    now = time.time()
    plans, unread = read_all_plans(runs_dir)
    answers = active(plans, runs_dir, ask) if ask else None
    running = answers.running if answers else {}
    found = []
    for plan in plans:
        try:
            record = read_record(runs_dir / plan["job_id"])
        except NotReadError as error:
            record, unread[plan["job_id"]] = None, error.finding
        found.append(run_list.job(plan, record, running.get(plan["job_id"])))
    for path in sorted(runs_dir.glob("verify-*/report.json")):
        try:
            found.append(run_list.verification(read_report(path)))
        except NotReadError as error:
            unread[path.parent.name] = error.finding
    chosen = run_list.selected(found, now, **given)
    lines = [run_list.table(chosen)]
    lines += [f"not known: {job_id}, as {why}" for job_id, why in (answers.unknown if answers else {}).items()]
    lines += map(state_format.line, unread.values())
    if found:
        content = run_list.content(run_list.selected(found, now), now)
        write_whole(runs_dir / "index.html", page("report/runs.html.j2", content))
        lines.append(f"page  {runs_dir / 'index.html'}")
    return {"runs": [vars(run) for run in chosen], "text": "\n".join(lines)}


def compare_jobs(runs_dir: Path, job_ids: Sequence[str]) -> str:
    """Compare two jobs: their ends, the settings that differ, and curves in runs/compare.html. Raises UnusableError."""
    if len(job_ids) != 2:
        raise UnusableError(f"{len(job_ids)} jobs to compare; expected: the ids of two jobs. See playbooks/jobs.yml")
    for job_id in job_ids:
        if not (runs_dir / job_id / "plan.json").is_file():
            raise UnusableError(f"{runs_dir / job_id} is no run of a job; expected: an id of playbooks/jobs.yml")
    plans = [read_plan(runs_dir / job_id) for job_id in job_ids]
    records = [run_list.job(plan, read_record(runs_dir / plan["job_id"])) for plan in plans]
    changed = run_list.differences(*plans)
    series = [read_series(runs_dir / job_id / "metrics.jsonl") for job_id in job_ids]
    target = runs_dir / "compare.html"
    write_whole(target, page("report/compare.html.j2", run_list.comparison(records, changed, series)))
    return f"{run_list.comparison_text(records, changed)}\npage  {target}"
