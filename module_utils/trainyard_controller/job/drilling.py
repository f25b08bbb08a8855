# SPDX-License-Identifier: Apache-2.0
"""Watch a run of a drill, kill in it what the drill kills, and collect what it, or a search for nodes, compares. The
rules are pure (trainyard/job/drill/).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...trainyard.base import state_format
from ...trainyard.base.findings import Finding, counted
from ...trainyard.base.spans import named_ranks
from ...trainyard.cluster.unreachable import reason
from ...trainyard.job.drill import bisect, drill_result
from ...trainyard.job.drill.drill_settings import Drill
from ...trainyard.job.drill.goal import DONE, KILL, Goal, decide, unread
from ...trainyard.job.plan import spares
from ..runs.pages import drill_page
from ..runs.run_folder import write_whole
from ..runs.saved_state import read_plan, read_record
from .heads import LIMIT_S
from .reporting import read_series
from .schedulers.scheduler_clients import Ask
from .watching import may_live_until

# Seconds between two polls of the head, and between two lines of progress.
POLL_S, SHOW_S = 0.5, 3.0
# Seconds after which a program is given up of whose lines no progress is read.
UNREAD_S = 60.0


def of_record(record: Mapping[str, Any]) -> Drill:
    """Return the drill from its plain record."""
    return Drill(**{**record, "arguments": tuple(record["arguments"])})


def watch(
    plan: Mapping[str, Any], goal: Goal, ask: Ask, show: Callable[[str], None], interrupted: Callable[[], bool]
) -> dict[str, Any]:
    """Poll the head until the run has done what it is for; return `killed` and `why` it was given up, or ""."""
    head, job = plan["head"]["host"], {"job_id": plan["job_id"], "job_dir": plan["job_dir"]}
    killed: dict[str, Any] | None = None
    until, read = may_live_until(plan), time.monotonic()
    shown = ("", 0.0)
    while not interrupted():
        found = ask("state", {head: {**job, "wait_s": POLL_S}}, limit_s=POLL_S + LIMIT_S)[head]
        now = time.monotonic()
        if "known" not in found:
            if now > until:
                return {"killed": killed, "why": f"no answer of {head}: {reason(found) or 'none'}"}
            time.sleep(1)
            continue
        cluster = found.get("cluster") or {}
        line = found.get("line", "")
        if line and line != shown[0] and now - shown[1] >= SHOW_S:
            show(f"  {line}")
            shown = line, now
        read = read if unread(cluster) else now
        if now - read > UNREAD_S:
            return {"killed": killed, "why": "no progress is read of what the program prints"}
        todo = decide(goal, cluster, killed is not None)
        if todo == DONE or not found["monitor_alive"]:
            return {"killed": killed, "why": ""}
        if todo == KILL:
            killed = _kill(plan, goal, ask)
            if not killed["processes"]:
                return {"killed": None, "why": f"no rank was found on {killed['host']}"}
            ranks = named_ranks(killed["ranks"])
            show(f"  killed on {killed['host']}: {counted(killed['processes'], 'process', 'processes')} ({ranks})")
    return {"killed": killed, "why": "interrupted"}


def _kill(plan: Mapping[str, Any], goal: Goal, ask: Ask) -> dict[str, Any]:
    """Kill on the last node, which is not the head's unless there is one node only."""
    host = plan["nodes"][-1]["host"]
    arguments = {"job_id": plan["job_id"], "job_dir": plan["job_dir"], "every": goal.kill == "node"}
    answer = ask("kill", {host: arguments})[host]
    return {"host": host, "ranks": answer.get("ranks", []), "processes": answer.get("processes", 0)}


def make_folder(plan: Mapping[str, Any], path: str, user: str, ask: Ask) -> list[Finding]:
    """Make a folder for checkpoints on all nodes of the run; return the findings where that failed."""
    answers = ask("make_folder", {host: {"path": path, "user": user} for host in spares.hosts(plan)})
    expected = f"a folder for the drill's checkpoints, made by {user}"
    action = "give that user the right to write there, or name another folder on the same disk with drill_checkpoints"
    return [
        Finding("drill_checkpoints", reason(answer) or "no answer", expected, action, host=host)
        for host, answer in answers.items()
        if "changed" not in answer
    ]


def remove_folder(plan: Mapping[str, Any], path: str, user: str, ask: Ask) -> list[str]:
    """Remove the drill's folder on all nodes of the run; return lines about what could not be removed."""
    answers = ask("remove_folder", {host: {"path": path, "user": user} for host in spares.hosts(plan)})
    return [f"{host}: {reason(answer) or 'no answer'}" for host, answer in answers.items() if "changed" not in answer]


def elsewhere(plan: Mapping[str, Any], user: str, ask: Ask) -> dict[str, str]:
    """Return newer checkpoints that only other nodes than that of rank 0 have, by host."""
    pattern = plan["checkpoints"]
    answers = ask("checkpoints", {node["host"]: {"pattern": pattern, "user": user} for node in plan["nodes"]})
    names = {host: answer.get("names", []) for host, answer in answers.items()}
    return drill_result.elsewhere(names, plan["head"]["host"])


def read_run(runs_dir: Path, run: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record of a run that has ended (drill_result.py): what was done in it, and what its folder has."""
    folder = runs_dir / run["job_id"]
    points = read_series(folder / "metrics.jsonl")
    return {**run, "summary": read_record(folder) or {}, "points": points}


def report(drill: Drill, runs: Sequence[Mapping[str, Any]], runs_dir: Path) -> dict[str, Any]:
    """Write drill.json and drill.html into the folder of the first run; return the result, `page` and `command`."""
    folder = runs_dir / runs[0]["job_id"]
    plan = read_plan(folder)
    records = [read_run(runs_dir, run) for run in runs]
    found = drill_result.of_runs(drill, plan, records)
    write_whole(folder / "drill.html", drill_page(found, plan, records))
    record = state_format.stamped(found, state_format.DRILL)
    write_whole(folder / "drill.json", json.dumps(record, indent=2, allow_nan=False) + "\n")
    command = str((plan.get("launch") or {}).get("command") or "")
    return {**found, "page": str(folder / "drill.html"), "command": command}


def on_parts(jobs: Sequence[Mapping[str, Any]]) -> list[bisect.Run]:
    """Return the runs of jobs, each with `hosts` and `run_dir`, which is "" where it was refused."""
    found = []
    for job in jobs:
        folder = Path(job["run_dir"])
        summary = read_record(folder) if job["run_dir"] else None
        ended = bisect.outcome(summary, read_series(folder / "metrics.jsonl"))
        found.append(bisect.Run(frozenset(job["hosts"]), *ended))
    return found


def record_search(jobs: Sequence[Mapping[str, Any]], runs: Sequence[bisect.Run], result: Mapping[str, Any]) -> None:
    """Write bisect.json into the folder of the first job that has one."""
    folder = next((Path(job["run_dir"]) for job in jobs if job["run_dir"]), None)
    if folder:
        listed = [
            {**job, "run_dir": Path(job["run_dir"]).name, "outcome": run.outcome, "steps_per_s": run.rate}
            for job, run in zip(jobs, runs)
        ]
        text = json.dumps({**result, "runs": listed}, indent=2, allow_nan=False)
        write_whole(folder / "bisect.json", f"{text}\n")
