# SPDX-License-Identifier: Apache-2.0
"""The list of all runs of a controller, by kind, as playbooks/jobs.yml and runs/index.html show it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from ..base.adhoc import playbook
from ..base.findings import counted, grouped
from ..base.redaction import safe_text
from ..job.record import job_runs
from ..job.run.logs.progress import clock
from .curves import together
from .text import shown, utc

Data = Mapping[str, Any]

JOB, DRILL, VERIFICATION, MEASUREMENT = "job", "drill", "verification", "measurement"
# Kinds of runs, in the order of the list: the title, and what a run's own text is.
KINDS = {
    JOB: ("Jobs", "progress"),
    DRILL: ("Drills", "result"),
    VERIFICATION: ("Verifications", "cluster"),
    MEASUREMENT: ("Jobs of verifications and benchmarks", "name"),
}
# States of a job without a final record: its nodes report that it runs, they report nothing or nobody was asked, or
# they are hosts of another inventory.
RUNNING, UNKNOWN, OTHER_INVENTORY = "running", "unknown", "other_inventory"


@dataclass(frozen=True)
class Run:
    """A row of the list. `started` is in seconds since the epoch, `elapsed_s` and `goodput` (0 to 1) may be unknown.

    `inventory` has the options with which a job was started.
    """

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
    inventory: str = ""
    page: str = "report.html"


def job(plan: Data, summary: Data | None, line: str | None = None, *, elsewhere: bool = False) -> Run:
    """Return the row of a job: its record if it is final, otherwise the progress `line` that its head sent, if any.

    A job without both is unknown, unless it runs `elsewhere`: on hosts that are not in this inventory.
    """
    record = summary or {}
    state = record.get("state") or UNKNOWN
    if line is not None:
        state = RUNNING
    elif state in ("running", "pending"):
        state = UNKNOWN
    if state == UNKNOWN and elsewhere:
        state = OTHER_INVENTORY
    metrics = record.get("metrics") or {}
    known = [f"{name} {metrics[name]:g}" for name in ("step", "epoch", "loss") if isinstance(metrics.get(name), float)]
    launch, asked_by = plan.get("launch") or {}, plan.get("asked_by") or job_runs.USER
    kind = {job_runs.USER: JOB, "drill.yml": DRILL}.get(asked_by, MEASUREMENT)
    inventory = safe_text(str(launch.get("inventory") or ""))
    if kind == MEASUREMENT:
        progress = plan["job_name"]
    elif state == OTHER_INVENTORY:
        progress = f"started with {inventory}" if inventory else "its hosts are not in this inventory"
    else:
        progress = line.strip() if line else " ".join(known)
    created = datetime.strptime(plan["created"], "%Y-%m-%dT%H:%M:%S%z").timestamp()
    return Run(
        id=plan["job_id"],
        kind=kind,
        name=plan["job_name"],
        state=state,
        started=record.get("started") or created,
        elapsed_s=record.get("elapsed_s") if state != RUNNING else None,
        nodes=len(plan["nodes"]) or int((plan.get("engine") or {}).get("nodes") or 0),
        ranks=plan["world_size"],
        progress=safe_text(progress),
        goodput=(record.get("goodput") or {}).get("share"),
        launched_by=str(launch.get("by", "")),
        where=(plan.get("engine") or {}).get("kind") or plan["head"]["host"],
        inventory=inventory,
    )


def drills(runs: Sequence[Run], results: Mapping[str, Data]) -> list[Run]:
    """Return the runs with one row for each drill in the place of those that it consists of.

    `results` are the drill.json (job/drill/drill_result.py) by the id of the undisturbed run.
    """
    parts = {run["job_id"] for result in results.values() for run in result["runs"]}
    rows = [
        replace(
            run,
            state=results[run.id]["state"],
            progress=safe_text(results[run.id]["headline"]),
            page="drill.html",
            # Those of its first run alone.
            elapsed_s=None,
            goodput=None,
        )
        for run in runs
        if run.id in results
    ]
    return [*(run for run in runs if run.id not in parts), *rows]


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
        progress=safe_text(report["cluster"]),
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


def _used(runs: Sequence[Run]) -> tuple[list[str], list[list[str]]]:
    """Return the columns in which a run of this kind has a value, and the rows."""
    rows = [_cells(run) for run in runs]
    head = [KINDS[runs[0].kind][1] if name == "progress" else name for name in HEAD]
    used = [place for place in range(len(HEAD)) if any(row[place] for row in rows)]
    return [head[place] for place in used], [[row[place] for place in used] for row in rows]


def table(runs: Sequence[Run]) -> str:
    """Return runs of one kind as text for a terminal."""
    head, rows = _used(runs)
    widths = [max(map(len, column)) for column in zip(head, *rows)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in [head, *rows])


def _by_kind(runs: Sequence[Run]) -> dict[str, list[Run]]:
    found = grouped((run.kind, run) for run in runs)
    return {kind: found[kind] for kind in KINDS if kind in found}


def text(runs: Sequence[Run]) -> str:
    """Return the list as text for a terminal, a table for each kind."""
    return "\n\n".join(f"{KINDS[kind][0]}\n{table(of)}" for kind, of in _by_kind(runs).items()) or "no runs"


def of_other_inventories(runs: Sequence[Run]) -> list[tuple[str, str]]:
    """Return how many runs were started with which other inventory, each with the command that lists them."""
    found = grouped((run.inventory, run) for run in runs if run.state == OTHER_INVENTORY and run.inventory)
    return [
        (f"{counted(len(of), 'run')} of another inventory", playbook("playbooks/jobs.yml", inventory))
        for inventory, of in found.items()
    ]


def content(runs: Sequence[Run], made: float) -> dict[str, Any]:
    """Return what templates/report/runs.html.j2 shows."""
    states = sorted({run.state for run in runs})
    return {
        "title": "Runs",
        "state": shown("skipped"),
        "made": f"As of {utc(made)}",
        "kinds": [_content(kind, of) for kind, of in _by_kind(runs).items()],
        "others": of_other_inventories(runs),
        "options": [("", "all"), *((state, shown(state)["word"]) for state in states)],
    }


def _content(kind: str, runs: Sequence[Run]) -> dict[str, Any]:
    head, rows = _used(runs)
    return {
        "kind": kind,
        "title": KINDS[kind][0],
        "head": head,
        "rows": [
            {"id": run.id, "state": shown(run.state), "cells": cells[2:], "href": f"{run.id}/{run.page}"}
            for run, cells in zip(runs, rows)
        ],
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
    lines = [*(table(of) for of in _by_kind(runs).values()), ""]
    for name, one, two in changed:
        lines += [name, f"  {one or '(not set)'}", f"  {two or '(not set)'}"]
    return "\n".join(lines if changed else [*lines, "no setting differs"])


def comparison(
    runs: Sequence[Run], changed: Sequence[tuple[str, str, str]], series: Sequence[Sequence[Mapping[str, float]]]
) -> dict[str, Any]:
    """Return what templates/report/compare.html.j2 shows: two jobs, their settings, and the curves of both."""
    head, rows = _used(runs)
    return {
        "title": f"{runs[0].id} and {runs[1].id}",
        "state": shown("skipped"),
        "head": head,
        "rows": [{"id": run.id, "state": shown(run.state), "cells": cells[2:]} for run, cells in zip(runs, rows)],
        "changed": [list(map(safe_text, each)) for each in changed],
        "curves": together(series, [run.id for run in runs]),
    }
