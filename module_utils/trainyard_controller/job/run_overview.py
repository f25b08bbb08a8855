# SPDX-License-Identifier: Apache-2.0
"""All runs of this controller: the list with what runs now, runs/index.html, and two jobs compared."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...trainyard.base import state_format
from ...trainyard.base.findings import UnusableError
from ...trainyard.job.record.job_runs import Answers
from ...trainyard.report import run_list
from ..runs.pages import page
from ..runs.run_folder import read_all_plans, write_whole
from ..runs.saved_state import NotReadError, read_drill, read_plan, read_record, read_report
from .reporting import read_series
from .run_choice import active, hosts_to_ask
from .schedulers.scheduler_clients import Ask


@dataclass(frozen=True)
class Inventory:
    """The inventory of this call: its `options`, and whether it `knows` a host."""

    options: str
    knows: Callable[[str], bool]

    def has_none_of(self, plan: Mapping[str, Any]) -> bool:
        """Return whether none of the hosts that could report on a job is here."""
        hosts = hosts_to_ask(plan)
        return bool(hosts) and not any(map(self.knows, hosts))

    def differs(self, plan: Mapping[str, Any]) -> bool:
        """Return whether a job was started with another inventory, whose hosts may have the names of hosts here."""
        started_with = (plan.get("launch") or {}).get("inventory")
        return bool(started_with) and started_with != self.options


def list_runs(
    runs_dir: Path, ask: Ask | None, given: Mapping[str, Any], inventory: Inventory | None = None
) -> dict[str, Any]:
    """Return the chosen runs as `runs` and `text`, and write runs/index.html with all of them.

    `given` are `state`, `name` and `days`. With `ask`, the heads of jobs without a final record report which run;
    of jobs of another `inventory`, nobody is asked.
    """
    now = time.time()
    plans, unread = read_all_plans(runs_dir)
    away = {plan["job_id"] for plan in plans if inventory and inventory.has_none_of(plan)}
    answers = active([plan for plan in plans if plan["job_id"] not in away], runs_dir, ask) if ask else Answers({}, {})
    found, drills = [], {}
    for plan in plans:
        job_id = plan["job_id"]
        record = None
        try:
            record = read_record(runs_dir / job_id)
            if drill := read_drill(runs_dir / job_id):
                drills[job_id] = drill
        except NotReadError as error:
            unread[job_id] = error.finding
        silent = job_id in answers.unknown
        elsewhere = job_id in away or (inventory is not None and not silent and inventory.differs(plan))
        found.append(run_list.job(plan, record, answers.running.get(job_id), elsewhere=elsewhere))
    found = run_list.drills(found, drills)
    for path in sorted(runs_dir.glob("verify-*/report.json")):
        try:
            found.append(run_list.verification(read_report(path)))
        except NotReadError as error:
            unread[path.parent.name] = error.finding
    chosen = run_list.selected(found, now, **given)
    lines = [run_list.text(chosen), *map(": ".join, run_list.of_other_inventories(chosen))]
    lines += [f"not known: {job_id}, as {why}" for job_id, why in answers.unknown.items()]
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
            raise UnusableError(
                f"{runs_dir / job_id} is no job; expected: the id of one (playbooks/jobs.yml), as verifications are "
                "compared by playbooks/compare.yml"
            )
    plans = [read_plan(runs_dir / job_id) for job_id in job_ids]
    records = [run_list.job(plan, read_record(runs_dir / plan["job_id"])) for plan in plans]
    changed = run_list.differences(*plans)
    series = [read_series(runs_dir / job_id / "metrics.jsonl") for job_id in job_ids]
    target = runs_dir / "compare.html"
    write_whole(target, page("report/compare.html.j2", run_list.comparison(records, changed, series)))
    return f"{run_list.comparison_text(records, changed)}\npage  {target}"
