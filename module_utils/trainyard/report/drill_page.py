# SPDX-License-Identifier: Apache-2.0
"""The content of drill.html (templates/report/drill.html.j2), and the text of a drill for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..findings.findings import counted, grouped
from ..findings.redaction import safe_text
from ..job.drill import series
from .curves import thinned
from .plot import is_drawn, plot
from .text import shown

Data = Mapping[str, Any]

TITLES = {
    "undisturbed": "undisturbed",
    "stopped": "stopped at half",
    "resumed": "launched again",
    "rank": "a rank killed",
    "node": "a node's processes killed",
}
# The color of each run's line on the page (templates/report/report.css).
_KINDS = {"undisturbed": "main", "stopped": "second", "resumed": "expected", "rank": "other", "node": "failed"}


# What to do about a check that failed, by its name.
_MENDS = {
    "signal": "have the program save and end when it gets the signal (docs/drill.md)",
    "saves": "have the program save complete checkpoints where job_checkpoints names them",
    "step": "have the program begin behind the step of the checkpoint that it loads",
    "loss": "have the program load all that it saves: weights, optimizer, schedule of the learning rate",
    "data": "have the program go on with the order of its data: seed and place in the epoch",
}


def text(result: Data, page: str, command: str = "") -> str:
    """Return the result as the lines that end the playbook; `command` is that of this drill."""
    lines = [result["headline"], ""]
    width = max(len(check["title"]) for check in result["checks"])
    for check in result["checks"]:
        lines.append(f"  {check['title']:{width}}  {shown(check['state'])['word']}")
        # What passed needs no details here; the page has them.
        by_text = grouped((case["text"], case["title"]) for case in check["cases"] if case["state"] != "pass")
        lines += [f"    {' / '.join(titles)}: {safe_text(said)}" for said, titles in by_text.items()]
    costs = [f"  {cost['title']}: {cost['text']}" for cost in result["costs"] if cost["text"]]
    notes = [f"  {safe_text(note)}" for note in result["notes"]]
    about = [*lines, *(["", *costs] if costs else []), *(["", *notes] if notes else []), "", f"page  {page}"]
    missing = next((check["name"] for check in result["checks"] if check["state"] == result["state"]), "")
    if result["state"] == "fail" and missing in _MENDS:
        about += [f"next  {_MENDS[missing]}, then drill again", *([f"      {command}"] if command else [])]
    return "\n".join(about)


def content(result: Data, plan: Data, runs: Sequence[Data]) -> dict[str, Any]:
    """Return what templates/report/drill.html.j2 shows; `runs` are the records that the result came from."""
    faults = {case["fault"]: case["title"] for check in result["checks"] for case in check["cases"]}
    noise = result["noise"]
    differ = f"differ by up to {100 * noise:.2g} %" if noise else "are equal"
    return {
        "title": f"{result['headline']}: {plan['job_name']}",
        "state": shown(result["state"]),
        "headline": result["headline"],
        "about": [
            f"{plan['job_name']}: {counted(plan['world_size'], 'rank')} on {counted(len(plan['nodes']), 'node')} "
            f"({plan['launcher']}), {counted(result['steps'], 'step')}",
            "no losses to compare" if noise is None else f"losses of undisturbed runs {differ}",
        ],
        "head": ["check", *faults.values()],
        "checks": [
            {"title": check["title"], "cells": [_cell(check, fault) for fault in faults]} for check in result["checks"]
        ],
        "costs": [[cost["title"], safe_text(cost["text"]) or "not known"] for cost in result["costs"]],
        "notes": [safe_text(note) for note in result["notes"]],
        "curve": _curve(runs),
        "runs": [
            {
                **run,
                "title": TITLES[run["run"]],
                "state": shown(run["state"]),
                "href": f"../{run['job_id']}/report.html",
            }
            for run in result["runs"]
        ],
    }


def _cell(check: Data, fault: str) -> dict[str, Any]:
    case = next((each for each in check["cases"] if each["fault"] == fault), None)
    return {"state": shown(case["state"]), "text": safe_text(case["text"])} if case else {"state": None, "text": ""}


def _curve(runs: Sequence[Data]) -> dict[str, Any] | None:
    """Return one drawing with the loss of each run over its steps; None without two losses."""
    lines = []
    for run in runs:
        points = [(point.step, point.loss) for point in _with_breaks(series.read(run["points"]))]
        if any(is_drawn(loss) for _, loss in points):
            lines.append((TITLES[run["run"]], _KINDS[run["run"]], thinned(points)))
    drawn = [point for _, _, points in lines for point in points if is_drawn(point[1])]
    if len(drawn) < 2:
        return None
    return {"linear": plot(lines), "logarithmic": None, "label": "loss over the steps of all runs", "x_name": "step",
            "gaps": [], "restarts": []}  # fmt: skip


def _with_breaks(points: Sequence[series.Point]) -> list[series.Point]:
    """Return the steps with a break where a run went back."""
    found: list[series.Point] = []
    for point in points:
        if found and point.step < found[-1].step:
            found.append(series.Point(found[-1].step, float("nan")))
        found.append(point)
    return found
