# SPDX-License-Identifier: Apache-2.0
"""The content of report.html of a job (templates/report/job.html.j2), from summary.json and metrics.jsonl."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from textwrap import dedent
from typing import Any

from ..findings.redaction import safe, safe_text
from ..findings.spans import stretches
from ..job.run import checkpoints, goodput
from ..job.run.progress import clock, followed, not_a_number_text
from ..job.run.restarts import gave_up, restart_text, went_on_text
from . import job_processes, job_traffic
from .figures import PALETTE, figure_layout
from .job_text import size_text
from .text import shown, utc

Data = Mapping[str, Any]
Series = Sequence[Mapping[str, float]]

# A curve of more points looks the same; of each stretch the least and the greatest stay, so that no peak is lost.
MAX_POINTS = 2000
MAX_FIGURES = 6
MAX_STRETCHES = 50
_NO_NUMBER = {"fillcolor": "#b3261e", "opacity": 0.15, "line": {"width": 1, "color": "#b3261e"}}
_PLACES = frozenset({"step", "steps", "epoch", "elapsed_s"})


def content(summary: Data, series: Series, text: str, reload_s: float = 0.0) -> dict[str, Any]:
    """Return what stands in templates/report/job.html.j2. `text` is what the user reads at the end.

    The page of a running job reloads itself every `reload_s`, unless that is 0, as it is written again and again.
    """
    summary = safe(summary)
    lost = summary["loss_not_a_number"]
    headline, _, rest = safe_text(text).partition("\n")
    figures, metrics = _curves(series, lost)
    processes = job_processes.rows(summary)
    present = sorted({each["filtered"] for each in processes} - {None})
    return {
        "title": f"{summary['state']}: job {summary['job_id']}",
        "state": shown("unknown" if lost and lost["since"] and summary["state"] == "succeeded" else summary["state"]),
        "state_of_job": shown(summary["state"]),
        "headline": headline.rstrip(":."),
        "lost": not_a_number_text(lost) if lost else "",
        "about": _about(summary),
        "text": dedent(rest) if rest.strip() else "",
        "figures": figures,
        "metrics": metrics,
        "processes": processes,
        "options": [("", "all"), *((state, state) for state in present)],
        "restarts": _restarts(summary),
        "reload_s": round(reload_s) if summary["state"] in ("running", "pending") else 0,
        "since": clock(summary["elapsed_s"] or 0),
    }


def _about(summary: Data) -> list[tuple[str, str]]:
    saved = summary.get("checkpoints")
    about = [
        ("job", summary["job_name"]),
        ("scheduler", (summary.get("engine") or {}).get("kind", "")),
        ("launcher", summary["launcher"]),
        ("size", size_text(summary)),
        ("began", utc(summary["started"])),
        ("ended", utc(summary["finished"])),
        ("took", clock(summary["elapsed_s"]) if summary["elapsed_s"] is not None else ""),
        ("goodput", goodput.text(summary["goodput"]).removeprefix("goodput ") if summary.get("goodput") else ""),
        ("checkpoints", "; ".join(checkpoints.texts(saved, summary["finished"])) if saved else ""),
        ("NCCL", job_traffic.nccl_text(summary)),
        ("ports, all nodes", job_traffic.ports_text(summary)),
    ]
    return [(name, value) for name, value in about if value]


def _curves(series: Series, loss: Data | None) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """Return figures and texts of metrics: loss and rate first, then the others by name.

    `loss` is where the loss was not a number.
    """
    names = {name for point in series for name in point} - _PLACES
    order = [name for name in ("loss", "rate") if name in names] + sorted(names - {"loss", "rate"})
    figures: list[dict[str, Any]] = []
    metrics: list[dict[str, str]] = []
    for name in order[:MAX_FIGURES]:
        points = [point for point in series if isinstance(point.get(name), (int, float))]
        finite = [point for point in points if math.isfinite(point[name])]
        # The series of a long run does not have every line.
        lost = (loss if name == "loss" else None) or followed(points, name)
        metric = {"name": safe_text(name), "lost": "", "figure": ""}
        if lost:
            metric["lost"] = not_a_number_text(lost, safe_text(name))
        if len(finite) >= 2:
            metric["figure"] = f"curve-{len(figures)}"
            metric["label"] = f"{name} over the run, from {finite[0][name]:.4g} to {finite[-1][name]:.4g}"
            figures.append({"id": metric["figure"], **_curve(name, points, PALETTE[len(figures) % len(PALETTE)])})
        if metric["lost"] or metric["figure"]:
            metrics.append(metric)
    return figures, metrics


def _curve(name: str, points: Series, color: str) -> dict[str, Any]:
    steps = [point.get("step", math.nan) for point in points]
    rising = all(later > earlier for earlier, later in zip(steps, steps[1:]))
    drawn = thinned([(point["step"] if rising else point.get("elapsed_s", 0.0), point[name]) for point in points])
    trace = {
        "type": "scatter",
        "mode": "lines+markers" if len(drawn) < 60 else "lines",
        "x": [place for place, _ in drawn],
        # Where it was not a number, the line is broken.
        "y": [value if math.isfinite(value) else None for _, value in drawn],
        "name": escape(name),
        "line": {"color": color, "width": 2},
        "marker": {"size": 5},
    }
    lost = stretches(at for at, (_, value) in enumerate(drawn) if not math.isfinite(value))
    shapes = [
        {"type": "rect", "yref": "paper", "x0": drawn[first][0], "x1": drawn[last][0], "y0": 0, "y1": 1, **_NO_NUMBER}
        for first, last in lost[:MAX_STRETCHES]
    ]
    axis = {"automargin": True, "zeroline": False}
    title = {"text": "step" if rising else "seconds since the start"}
    layout = figure_layout(height=360, showlegend=False, shapes=shapes, xaxis={**axis, "title": title}, yaxis=axis)
    return {"data": [trace], "layout": layout}


def thinned(points: Sequence[tuple[float, float]], most: int = MAX_POINTS) -> list[tuple[float, float]]:
    """Return about `most` of the points: the first and last, of each stretch the least and the greatest, and breaks."""
    if len(points) <= most:
        return list(points)
    length = -(-2 * len(points) // most)
    remaining = {0, len(points) - 1}
    for start in range(0, len(points), length):
        stretch = range(start, min(start + length, len(points)))
        finite = [index for index in stretch if math.isfinite(points[index][1])]
        remaining.update(index for index in stretch if not math.isfinite(points[index][1]))
        if finite:
            remaining |= {min(finite, key=lambda at: points[at][1]), max(finite, key=lambda at: points[at][1])}
    return [points[index] for index in sorted(remaining)]


def _restarts(summary: Data) -> dict[str, Any] | None:
    if not summary["max_restarts"]:
        return None
    lines = []
    for restart in summary["restarts"]:
        details = "; ".join(filter(None, (went_on_text(restart), goodput.cost_text(restart))))
        lines.append("; ".join(filter(None, (restart_text(restart), details))))
    number = f"{len(lines)} of at most {summary['max_restarts']}."
    return {"number": number, "lines": [*lines, *gave_up(summary)]}
