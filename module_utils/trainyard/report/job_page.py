# SPDX-License-Identifier: Apache-2.0
"""report.html of a job: how it ended, loss and rate, the state of each rank; from summary.json and metrics.jsonl."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from textwrap import dedent
from typing import Any

from ..job.failure import exit_text
from ..job.progress import clock, followed, not_a_number_text, not_numbers
from ..job.restarts import restart_text
from ..record.findings import counted
from ..record.redaction import safe, safe_text
from .figures import PALETTE, figure_layout
from .markup import Html, Row, joined, table, tag, text
from .page import badge, figure, page, section, utc

Data = Mapping[str, Any]
Series = Sequence[Mapping[str, float]]

# A curve of more points looks the same; of each stretch the least and the greatest stay, so that no peak is lost.
MOST_POINTS = 2000
MOST_FIGURES = 6
MOST_STRETCHES = 50
_PLACES = frozenset({"step", "steps", "epoch", "elapsed_s"})


def job_page(summary: Data, series: Series, told: str, library: bytes) -> str:
    """Return the page. `told` is the text that the user reads at the end, `library` is plotly.js."""
    summary = safe(summary)
    lost = summary["loss_not_a_number"]
    figures, places = _curves(series, lost)
    headline, _, rest = safe_text(told).partition("\n")
    title = f"{summary['state']}: job {summary['job_id']}"
    sections = [_head(summary, headline), _told(rest), *places, _ranks(summary), _restarts(summary)]
    state = "unknown" if lost and lost["since"] and summary["state"] == "succeeded" else summary["state"]
    return page(title, state, [part for part in sections if part], figures, library)


def _head(summary: Data, headline: str) -> Html:
    nodes = len(summary["nodes"])
    world = summary["world_size"]
    about = [
        ("job", summary["job_name"]),
        ("scheduler", (summary.get("engine") or {}).get("kind", "")),
        ("launcher", summary["launcher"]),
        ("ranks", f"{world} on {counted(nodes, 'node')}"),
        ("began", utc(summary["started"])),
        ("ended", utc(summary["finished"])),
        ("took", clock(summary["elapsed_s"]) if summary["elapsed_s"] is not None else ""),
    ]
    rows = [joined(tag("dt", name), tag("dd", value)) for name, value in about if value]
    lost = summary["loss_not_a_number"]
    said = tag("p", not_a_number_text(lost), class_="state unknown", id="lost") if lost else Html("")
    return tag("header", tag("h1", badge(summary["state"]), " ", headline.rstrip(":.")), said, tag("dl", *rows))


def _told(rest: str) -> Html:
    if not rest.strip():
        return Html("")
    return tag("div", tag("h2", "What happened"), tag("pre", dedent(rest), class_="wrap"), class_="panel", id="told")


def _curves(series: Series, loss: Data | None) -> tuple[list[dict[str, Any]], list[Html]]:
    """Return figures and their places in the page: loss and rate first, then the other metrics by name.

    `loss` is where the loss was not a number.
    """
    names = {name for point in series for name in point} - _PLACES
    order = [name for name in ("loss", "rate") if name in names] + sorted(names - {"loss", "rate"})
    figures: list[dict[str, Any]] = []
    places: list[Html] = []
    for name in order[:MOST_FIGURES]:
        points = [point for point in series if isinstance(point.get(name), (int, float))]
        finite = [point for point in points if math.isfinite(point[name])]
        # Of a long run the series has not every line.
        lost = (loss if name == "loss" else None) or followed(points, name)
        said = []
        if lost:
            said.append(tag("p", f"{not_a_number_text(lost, safe_text(name))}."))
        if len(finite) >= 2:
            each = f"curve-{len(figures)}"
            figures.append({"id": each, **_curve(name, points, PALETTE[len(figures) % len(PALETTE)])})
            said.append(figure(each, f"{name} over the run, from {finite[0][name]:.4g} to {finite[-1][name]:.4g}"))
        if said:
            places.append(section(f"metric-{len(places)}", safe_text(name), *said))
    return figures, places


def _curve(name: str, points: Series, color: str) -> dict[str, Any]:
    steps = [point.get("step", math.nan) for point in points]
    rising = all(later > earlier for earlier, later in zip(steps, steps[1:]))
    kept = thinned([(point["step"] if rising else point.get("elapsed_s", 0.0), point[name]) for point in points])
    trace = {
        "type": "scatter",
        "mode": "lines+markers" if len(kept) < 60 else "lines",
        "x": [place for place, _ in kept],
        # Where it was not a number, the line is broken.
        "y": [value if math.isfinite(value) else None for _, value in kept],
        "name": str(text(name)),
        "line": {"color": color, "width": 2},
        "marker": {"size": 5},
    }
    stretches = not_numbers([value for _, value in kept])[:MOST_STRETCHES]
    shapes = [
        {
            "type": "rect",
            "yref": "paper",
            "x0": kept[first][0],
            "x1": kept[last][0],
            "y0": 0,
            "y1": 1,
            "fillcolor": "#b3261e",
            "opacity": 0.15,
            "line": {"width": 1, "color": "#b3261e"},
        }
        for first, last in stretches
    ]
    axis = {"automargin": True, "zeroline": False}
    title = {"text": "step" if rising else "seconds since the start"}
    layout = figure_layout(height=360, showlegend=False, shapes=shapes, xaxis={**axis, "title": title}, yaxis=axis)
    return {"data": [trace], "layout": layout}


def thinned(points: Sequence[tuple[float, float]], most: int = MOST_POINTS) -> list[tuple[float, float]]:
    """Return about `most` of the points: the first and last, of each stretch the least and the greatest, and breaks."""
    if len(points) <= most:
        return list(points)
    length = -(-2 * len(points) // most)
    kept = {0, len(points) - 1}
    for start in range(0, len(points), length):
        stretch = range(start, min(start + length, len(points)))
        finite = [index for index in stretch if math.isfinite(points[index][1])]
        kept.update(index for index in stretch if not math.isfinite(points[index][1]))
        if finite:
            kept |= {min(finite, key=lambda at: points[at][1]), max(finite, key=lambda at: points[at][1])}
    return [points[index] for index in sorted(kept)]


def _ranks(summary: Data) -> Html:
    failure = summary.get("failure") or {}
    rows = []
    for node in summary["nodes"]:
        for process in node["processes"]:
            first = failure.get("host") == node["host"] and failure.get("process") == process["name"]
            state, said = _ended(process, node, first)
            ranks = _span(process["ranks"])
            at = process.get("time")
            when = clock(at - summary["started"]) if at and summary["started"] else ""
            log = f"logs/{process['log']}"
            rows.append(
                Row((process["name"], ranks, node["host"], badge(state), said, when, log), {"data_state": state})
            )
        if not node["processes"]:
            rows.append(Row((node["host"], "", node["host"], badge(node["state"]), node["why"], "", "")))
    present = sorted({str(row.attributes.get("data_state", "")) for row in rows} - {""})
    options = [tag("option", "all", value=""), *(tag("option", state, value=state) for state in present)]
    choice = tag(
        "p",
        tag("label", "Find ", Html('<input type="search" id="filter-text">')),
        tag("label", "State ", tag("select", *options, id="filter-state")),
        tag("span", "", id="filter-count", role="status", class_="soft"),
        class_="filter",
    )
    head = ["process", "ranks", "node", "state", "how it ended", "after", "log"]
    return section("ranks", "Processes", choice, table("Processes in the order of ranks", head, rows, id="filtered"))


def _ended(process: Data, node: Data, first: bool) -> tuple[str, str]:
    """Return the state of a process, and how it ended."""
    if "exit_code" not in process:
        return (node["state"] if node["state"] != "ended" else "unknown"), node["why"]
    if process["exit_code"] == 0:
        return "succeeded", ""
    said = exit_text(process)
    if process.get("result") in ("oom-kill", "timeout", "watchdog"):
        said += f" ({process['result']})"
    if first:
        return "failed", f"first: {said}"
    # Those that were ended because another one failed are not what is looked for.
    return ("stopped" if process.get("signal") in (9, 15) else "failed"), said


def _span(ranks: Iterable[int]) -> str:
    numbers = list(ranks)
    if len(numbers) > 1 and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]} to {numbers[-1]}"
    return ", ".join(str(number) for number in numbers)


def _restarts(summary: Data) -> Html:
    if not summary["max_restarts"]:
        return Html("")
    lines = [tag("li", restart_text(restart)) for restart in summary["restarts"]]
    number = tag("p", f"{len(lines)} of at most {summary['max_restarts']}.")
    return section("restarts", "Restarts", number, tag("ul", *lines) if lines else Html(""))
