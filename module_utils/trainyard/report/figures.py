# SPDX-License-Identifier: Apache-2.0
"""Figures of a verification's page: bandwidth between pairs of nodes, and over the message size. GB/s are 1e9 bytes/s.

A figure is plain data for plotly.js: {id, data, layout}. plotly's Python classes would cost a quarter of a second of
imports. Texts of machines are escaped, as plotly.js reads a little HTML in them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from ..findings.findings import counted, grouped
from ..verify.measured import size_text

Data = Mapping[str, Any]

# Colors that the color-blind can distinguish, on white and on black.
PALETTE = ("#3b8bd6", "#e08214", "#9a6fd0", "#1b9e8a", "#d6604d", "#8a8f98")
NEUTRAL = "#8a8f98"
# Reds below the gate, blues from the gate on.
_LOW, _NEAR, _ABOVE, _HIGH = "#9e1020", "#f7a58c", "#a6cbe8", "#2166ac"
# Above this many measured pairs (the full matrix of 140 nodes) only the slowest are drawn.
MAX_PAIRS = 10_000
# With more nodes, a cell of a sparse matrix would be smaller than a dot.
DENSE_NODES = 64
# Upper bound for the curves of a figure; the slowest are drawn.
MAX_LINES = 16


def short_names(hosts: Sequence[str]) -> list[str]:
    """Return names for axes: without the domain where they differ without it, and at most 24 letters."""
    parts = [host.split(".")[0] for host in hosts]
    # An address without its end is none.
    fits = len(set(parts)) == len(parts) and not all(part.isdigit() for part in parts)
    names = parts if fits else list(hosts)
    cut = [name if len(name) <= 24 else f"{name[:11]}..{name[-11:]}" for name in names]
    return cut if len(set(cut)) == len(cut) else names


def figure_layout(**more: Any) -> dict[str, Any]:
    """Return what the layouts of all figures have; colors come from the page."""
    return {
        "margin": {"l": 8, "r": 8, "t": 40, "b": 8},
        "font": {"family": "system-ui, sans-serif", "size": 13},
        "hovermode": "closest",
        **more,
    }


def pairs_figure(hosts: Sequence[str], stragglers: Data) -> tuple[dict[str, Any] | None, str]:
    """Return the figure of the node x node matrix, and a sentence on what it leaves out. None without a measurement.

    A cell is the last measurement of that pair, the row above the diagonal being the same as the column below it.
    """
    place = {host: number for number, host in enumerate(hosts)}
    by_pair = grouped(
        (tuple(sorted(place[host] for host in pair["hosts"])), pair)
        for pair in stragglers.get("pairs") or ()
        if all(host in place for host in pair["hosts"])
    )
    if not by_pair:
        return None, ""
    chosen = list(by_pair.items())
    left_out = ""
    if len(chosen) > MAX_PAIRS:
        left_out = f"Of {len(chosen)} pairs the {MAX_PAIRS} slowest are drawn; report.json has all of them."
        chosen = sorted(chosen, key=lambda item: -1 if item[1][-1]["busbw"] is None else item[1][-1]["busbw"])
        chosen = chosen[:MAX_PAIRS]
    names = [escape(name) for name in short_names(hosts)]
    cells = []
    for (first, second), measured in chosen:
        details = (measured[-1]["busbw"], str(measured[-1].get("state") or "unknown"), _note(measured))
        cells += [(first, second, *details), (second, first, *details)]
    return _matrix(names, hosts, cells, stragglers), left_out


def _note(measured: Sequence[Data]) -> str:
    """Say in which round a pair was measured, what went wrong, and what earlier rounds found."""
    last = measured[-1]
    parts = [f"round {last['round'] + 1}"] if isinstance(last.get("round"), int) else []
    parts += [counted(last["wrong"], "wrong value")] if last.get("wrong") else []
    parts += [str(last["error"])] if last.get("error") else []
    before = [f"{pair['busbw']:.3g}" for pair in measured[:-1] if pair["busbw"] is not None]
    return ", ".join([*parts, *([f"before {', '.join(before)} GB/s"] if before else [])])


def _matrix(
    names: Sequence[str],
    hosts: Sequence[str],
    cells: Sequence[tuple[int, int, float | None, str, str]],
    stragglers: Data,
) -> dict[str, Any]:
    number = len(names)
    top = max([value for _, _, value, _, _ in cells if value is not None] + [0.0]) * 1.02 or 1.0
    gate = stragglers.get("gate")
    mark = min(max(float(gate) / top, 0.001), 0.999) if gate else None
    scale: list[list[Any]] = [[0, _LOW], [1, _HIGH]]
    if mark:
        scale = [[0, _LOW], [mark, _NEAR], [mark, _ABOVE], [1, _HIGH]]
    rows, columns = [names[cell[0]] for cell in cells], [names[cell[1]] for cell in cells]
    values: list[float | None] = [cell[2] for cell in cells]
    held: list[Any] = [[cell[0], cell[1], cell[3], cell[4], cell[2]] for cell in cells]
    common: dict[str, Any] = {"hovertemplate": "%{text}<extra></extra>", "name": "pairs"}
    if number > DENSE_NODES and len(cells) < number * number / 4:
        # plotly has no color for a missing value: crosses mark those.
        colors = [0.0 if value is None else value for value in values]
        marker = {"symbol": "square", "size": 6, "color": colors, "coloraxis": "coloraxis"}
        trace = {"type": "scatter", "mode": "markers", "marker": marker, **common}
    else:
        # Each node once, without a value: plotly would widen the cells beside a node that has none.
        rows, columns = [*rows, *names], [*columns, *names]
        values, held = [*values, *[None] * number], [*held, *[None] * number]
        gap = 1 if number <= DENSE_NODES else 0
        trace = {"type": "heatmap", "z": values, "coloraxis": "coloraxis", "xgap": gap, "ygap": gap, **common}
    trace.update(x=columns, y=rows, customdata=held)
    crossed = [cell for cell in cells if cell[3] != "pass"]
    crosses = {
        **{"type": "scatter", "mode": "markers", "hoverinfo": "skip", "name": "not as expected"},
        "x": [names[cell[1]] for cell in crossed],
        "y": [names[cell[0]] for cell in crossed],
        "marker": {"symbol": "x-thin", "size": 8, "line": {"width": 2, "color": NEUTRAL}},
    }
    axis: dict[str, Any] = {"type": "category", "categoryorder": "array", "categoryarray": list(names), "nticks": 32}
    axis["automargin"] = True
    place = {"orientation": "h", "x": 0, "xanchor": "left", "y": 1.01, "yanchor": "bottom"}
    colorbar = {**place, "thickness": 12, "len": 0.9, "title": {"text": "GB/s", "side": "right"}}
    layout = figure_layout(
        height=min(860, max(420, 260 + 9 * number)),
        showlegend=False,
        xaxis={**axis, "range": [-0.5, number - 0.5], "side": "bottom", "showgrid": False, "tickangle": -45},
        yaxis={**axis, "range": [number - 0.5, -0.5], "showgrid": False},
        coloraxis={"cmin": 0, "cmax": top, "colorscale": scale, "colorbar": colorbar},
    )
    figure = {"id": "pairs", "data": [trace, crosses], "layout": layout, "hosts": list(hosts)}
    return {**figure, "median": stragglers.get("median")}


def bandwidth_figures(benchmarks: Iterable[Data]) -> list[dict[str, Any]]:
    """Return a figure for each collective and backend, over nodes and inside a node, with `title` and `note`."""
    groups = grouped(
        ((record["collective"], record.get("backend") or "", len(record.get("hosts") or ()) == 1), record)
        for record in benchmarks
        if _points(record)
    )
    figures: list[dict[str, Any]] = []
    for (collective, backend, inside), records in groups.items():
        where = "inside a node" if inside else "over nodes"
        over = f" over {backend}" if backend else ""
        note = ""
        if len(records) > MAX_LINES:
            note = f"The {MAX_LINES} slowest of {len(records)}; the table has all of them."
            records = sorted(records, key=lambda record: record["busbw_largest"] or 0)[:MAX_LINES]
        figure = _curves(records, inside)
        figure.update(id=f"bandwidth-{len(figures)}", title=f"{collective}{over}, {where}", note=note)
        figures.append(figure)
    return figures


def _points(record: Data, placement: str = "") -> list[tuple[int, float]]:
    """Return (bytes, busbw) in GB/s of a record, of the placement that it has when none is named."""
    placements = [placement] if placement else ["out_of_place", "in_place"]
    for name in placements:
        points = [
            (row["bytes"], row[name]["busbw"])
            for row in record.get("sizes") or ()
            if row.get(name) and row[name].get("busbw") is not None
        ]
        if points:
            return points
    return []


def _curves(records: Sequence[Data], inside: bool) -> dict[str, Any]:
    traces: list[dict[str, Any]] = []
    several = len(records) > 1
    for number, record in enumerate(records):
        color = NEUTRAL if several and inside and record["state"] == "pass" else PALETTE[number % len(PALETTE)]
        host = record["hosts"][0] if inside else ""
        name = host or (f"run {number + 1}" if several else "")
        # In place or out of place matters only if a single run is compared with another tool.
        placements = [""] if several else ["out_of_place", "in_place"]
        for placement in placements:
            points = _points(record, placement)
            if not points:
                continue
            label = " ".join(part for part in (name, placement.replace("_", " ")) if part)
            label += "" if record["state"] in ("pass", "skipped") else f" ({record['state']})"
            dash = "dot" if placement == "in_place" else "solid"
            line = {"color": color, "width": 2, "dash": dash}
            texts = [size_text(point[0]) for point in points]
            curve = {"x": [point[0] for point in points], "y": [point[1] for point in points], "text": texts}
            style = {"type": "scatter", "mode": "lines+markers", "line": line, "marker": {"size": 5}}
            traces.append({**style, **curve, "name": escape(label), "hovertemplate": "%{text}: %{y:.4g} GB/s"})
    sizes = sorted({point for trace in traces for point in trace["x"]})
    traces += _lines_of_expectation(records, sizes)
    step = -(-len(sizes) // 6)
    ticks = sizes[::-1][::step][::-1]
    layout = figure_layout(
        height=420,
        hovermode="closest",
        legend={"orientation": "h", "y": -0.2, "yanchor": "top", "x": 0},
        showlegend=True,
        xaxis={"type": "log", "tickvals": ticks, "ticktext": [size_text(tick) for tick in ticks], "automargin": True},
        yaxis={"rangemode": "tozero", "title": {"text": "bus bandwidth, GB/s"}, "automargin": True, "zeroline": False},
    )
    return {"data": traces, "layout": layout}


def _lines_of_expectation(records: Sequence[Data], sizes: Sequence[int]) -> list[dict[str, Any]]:
    lines = {}
    for record in records:
        expected = record.get("expected") or {}
        source = expected.get("source") or ""
        if expected.get("busbw") is not None:
            name = f"expected {expected['busbw']:.4g} GB/s" + (f" ({source})" if source else "")
            lines[name] = (expected["busbw"], "dash")
        if expected.get("gate") is not None:
            lines[f"gate {expected['gate']:.4g} GB/s"] = (expected["gate"], "dashdot")
    traces = []
    for name, (value, dash) in list(lines.items())[:4]:
        line = {"color": NEUTRAL, "width": 2, "dash": dash}
        curve = {"x": [sizes[0], sizes[-1]], "y": [value, value], "name": escape(name), "line": line}
        traces.append({"type": "scatter", "mode": "lines", "hovertemplate": "%{y:.4g} GB/s", **curve})
    return traces
