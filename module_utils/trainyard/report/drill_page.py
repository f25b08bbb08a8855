# SPDX-License-Identifier: Apache-2.0
"""The content of drill.html (templates/report/drill.html.j2), and the text of a drill for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..base.findings import counted, grouped
from ..base.redaction import HIDDEN, safe_text
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


def text(result: Data, page: str, command: str = "") -> str:
    """Return the result as the lines that end the playbook; `command` is that of this drill."""
    lines = [result["headline"], *_answer_lines(result["answer"]), ""]
    width = max(len(check["title"]) for check in result["checks"])
    for check in result["checks"]:
        lines.append(f"  {check['title']:{width}}  {shown(check['state'])['word']}")
        # What passed needs no details here; the page has them.
        by_text = grouped((case["text"], case["title"]) for case in check["cases"] if case["state"] != "pass")
        lines += [f"    {' / '.join(titles)}: {safe_text(said)}" for said, titles in by_text.items()]
    costs = [f"  {cost['title']}: {cost['text']}" for cost in result["costs"] if cost["text"]]
    notes = [f"  {safe_text(note)}" for note in result["notes"]]
    about = [*lines, *(["", *costs] if costs else []), *(["", *notes] if notes else []), "", f"page  {page}"]
    if result["state"] == "fail" and command:
        about.append("next  do what stands above, then drill again")
        # A command whose values are hidden cannot be called again as it stands.
        about += [] if HIDDEN in command else [f"      {command}"]
    return "\n".join(about)


def _answer_lines(answer: Data | None) -> list[str]:
    if answer is None:
        return []
    words = [("why", answer["why"]), ("lost", answer["lost"]), *(("do", action) for action in answer["do"])]
    return ["", *(f"  {word:5} {safe_text(said)}" for word, said in words if said)]


def drill_content(result: Data, plan: Data, runs: Sequence[Data]) -> dict[str, Any]:
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
        "answer": result["answer"],
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
            lines.append((TITLES[run["run"]], f"run {run['run']}", thinned(points)))
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
