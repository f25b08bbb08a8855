# SPDX-License-Identifier: Apache-2.0
"""The list of all runs of a controller, jobs and verifications, as playbooks/jobs.yml and runs/index.html show it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from ..findings.redaction import safe_text
from ..job.run.progress import clock
from .curves import together
from .text import shown, utc

Data = Mapping[str, Any]

JOB, VERIFICATION = "job", "verification"
# States of a job without a final record: its nodes report that it runs, they report nothing, or nobody was asked.
RUNNING, UNKNOWN = "running", "unknown"


@dataclass(frozen=True)
class Run:
    """A row of the list. `started` is in seconds since the epoch, `elapsed_s` and `goodput` (0 to 1) may be unknown."""

    id: str
    kind: str
    name: str
    state: str
    started: float | None
    elapsed_s: float | None
    nodes: int
    ranks: int | None = None
    progress: str = ""
    goodput: float | None = None
    launched_by: str = ""
    where: str = ""


def job(plan: Data, summary: Data | None, line: str | None = None) -> Run:
    """Return the row of a job: its record if it is final, otherwise the progress `line` that its head sent, if any."""
    record = summary or {}
    state = record.get("state") or UNKNOWN
    if line is not None:
        state = RUNNING
    elif state in ("running", "pending"):
        state = UNKNOWN
    metrics = record.get("metrics") or {}
    known = [f"{name} {metrics[name]:g}" for name in ("step", "epoch", "loss") if isinstance(metrics.get(name), float)]
    created = datetime.strptime(plan["created"], "%Y-%m-%dT%H:%M:%S%z").timestamp()
    return Run(
        id=plan["job_id"],
        kind=JOB,
        name=plan["job_name"],
        state=state,
        started=record.get("started") or created,
        elapsed_s=record.get("elapsed_s") if state != RUNNING else None,
        nodes=len(plan["nodes"]) or int((plan.get("engine") or {}).get("nodes") or 0),
        ranks=plan["world_size"],
        progress=safe_text(line.strip() if line else " ".join(known)),
        goodput=(record.get("goodput") or {}).get("share"),
        launched_by=str((plan.get("launch") or {}).get("by", "")),
        where=(plan.get("engine") or {}).get("kind") or plan["head"]["host"],
    )


def verification(report: Data) -> Run:
    """Return the row of a verification, from its report.json."""
    return Run(
        id=report["id"],
        kind=VERIFICATION,
        name=report["cluster"],
        state=report["state"],
        started=report["started"],
        elapsed_s=report["elapsed_s"],
        nodes=len(report["hosts"]),
    )


def selected(runs: Iterable[Run], now: float, *, state: str = "", name: str = "", days: float = 0.0) -> list[Run]:
    """Return the runs of a state, of a name, and of the last `days`, the newest first; empty values select all."""
    return sorted(
        (
            run
            for run in runs
            if state in ("", run.state)
            and name in ("", run.name)
            and (not days or (run.started or 0.0) >= now - days * 86400.0)
        ),
        key=lambda run: (run.state == RUNNING, run.started or 0.0, run.id),
        reverse=True,
    )


def _cells(run: Run) -> tuple[str, ...]:
    size = f"{run.nodes} nodes" if run.nodes != 1 else "1 node"
    return (
        run.id,
        run.state.replace("_", " "),
        utc(run.started).removesuffix(" UTC"),
        clock(run.elapsed_s) if run.elapsed_s is not None else "",
        size if run.ranks is None else f"{size}, {run.ranks} ranks" if run.ranks != 1 else f"{size}, 1 rank",
        run.progress,
        f"{run.goodput:.0%}" if run.goodput is not None else "",
        run.launched_by,
    )


HEAD = ("run", "state", "started (UTC)", "took", "size", "progress", "goodput", "launched by")


def table(runs: Sequence[Run]) -> str:
    """Return the list as text for a terminal."""
    if not runs:
        return "no runs"
    rows = [HEAD, *(_cells(run) for run in runs)]
    used = [place for place in range(len(HEAD)) if any(row[place] for row in rows[1:])]
    widths = {place: max(len(row[place]) for row in rows) for place in used}
    return "\n".join("  ".join(row[place].ljust(widths[place]) for place in used).rstrip() for row in rows)


def content(runs: Sequence[Run], made: float) -> dict[str, Any]:
    """Return what templates/report/runs.html.j2 shows."""
    states = sorted({run.state for run in runs})
    return {
        "title": "Runs",
        "state": shown("skipped"),
        "made": f"As of {utc(made)}",
        "head": HEAD,
        "rows": [
            {**asdict(run), "state": shown(run.state), "cells": _cells(run)[2:], "href": f"{run.id}/report.html"}
            for run in runs
        ],
        "options": [("", "all"), *((state, state.replace("_", " ")) for state in states)],
    }


def settings(plan: Data) -> dict[str, str]:
    """Return the settings of a job as texts: its variables, hosts and devices, source and versions."""
    launch = plan.get("launch") or {}
    chosen = {
        **launch.get("job", {}),
        "world_size": plan["world_size"],
        "hosts": [node["host"] for node in plan["nodes"]],
        "devices": plan["nodes"][0]["devices"] if plan["nodes"] else "",
        **{name: launch.get(name, "") for name in ("source_sha256", "revision", "inventory", "ansible", "python")},
    }
    return dict(_flat(chosen))


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _flat(each, f"{name}.{key}" if name else str(key))
    else:
        yield name, ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def differences(first: Data, second: Data) -> list[tuple[str, str, str]]:
    """Return the settings that differ between two plans: name, value of the first, value of the second."""
    one, two = settings(first), settings(second)
    names = [*one, *(name for name in two if name not in one)]
    return [(name, one.get(name, ""), two.get(name, "")) for name in names if one.get(name, "") != two.get(name, "")]


def comparison_text(runs: Sequence[Run], changed: Sequence[tuple[str, str, str]]) -> str:
    """Return how two jobs ended, and the settings that differ, as text for a terminal."""
    lines = [table(runs), ""]
    for name, one, two in changed:
        lines += [name, f"  {one or '(not set)'}", f"  {two or '(not set)'}"]
    return "\n".join(lines if changed else [*lines, "no setting differs"])


def comparison(
    runs: Sequence[Run], changed: Sequence[tuple[str, str, str]], series: Sequence[Sequence[Mapping[str, float]]]
) -> dict[str, Any]:
    """Return what templates/report/compare.html.j2 shows: two jobs, their settings, and the curves of both."""
    return {
        "title": f"{runs[0].id} and {runs[1].id}",
        "state": shown("skipped"),
        "head": HEAD,
        "rows": [{"id": run.id, "state": shown(run.state), "cells": list(_cells(run)[2:])} for run in runs],
        "changed": [list(map(safe_text, each)) for each in changed],
        "curves": together(series, [run.id for run in runs]),
    }
