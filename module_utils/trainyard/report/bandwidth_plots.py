# SPDX-License-Identifier: Apache-2.0
"""Plots of a verification's page: bandwidth over the message size, on logarithmic axes. GB/s are 1e9 bytes/s."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..base.findings import grouped
from ..verify.measured import size_text
from .plot import Plot, Point, plot

Data = Mapping[str, Any]

# Upper bound for the lines of a plot; the slowest benchmarks are drawn.
MAX_LINES = 16


@dataclass(frozen=True)
class BandwidthPlot:
    """A plot with its title, and a note on what it leaves out."""

    title: str
    note: str
    plot: Plot


def bandwidth_plots(benchmarks: Iterable[Data]) -> list[BandwidthPlot]:
    """Return a plot for each collective and backend, over nodes and inside a node."""
    groups = grouped(
        ((record["collective"], record.get("backend") or "", len(record.get("hosts") or ()) == 1), record)
        for record in benchmarks
        if _points(record)
    )
    found = []
    for (collective, backend, inside), records in groups.items():
        over = f" over {backend}" if backend else ""
        note = ""
        if len(records) > MAX_LINES:
            note = f"The {MAX_LINES} slowest of {len(records)}; the table has all of them."
            records = sorted(records, key=lambda record: record["busbw_largest"] or 0)[:MAX_LINES]
        title = f"{collective}{over}, {'inside a node' if inside else 'over nodes'}"
        lines = [*_measured(records, inside), *_expected(records)]
        sizes = sorted({x for _, _, points in lines for x, _ in points})
        step = -(-len(sizes) // 8)
        ticks = [(size, size_text(int(size))) for size in sizes[::-1][::step]]
        found.append(BandwidthPlot(title, note, plot(lines, ticks, log_x=True, log_y=True)))
    return found


def _points(record: Data, placement: str = "") -> list[Point]:
    """Return (bytes, busbw) in GB/s of a record, of the placement that it has when none is named."""
    for name in [placement] if placement else ["out_of_place", "in_place"]:
        points = [
            (float(row["bytes"]), float(row[name]["busbw"]))
            for row in record.get("sizes") or ()
            if row.get(name) and row[name].get("busbw") and row["bytes"]
        ]
        if points:
            return points
    return []


def _measured(records: Sequence[Data], inside: bool) -> list[tuple[str, str, list[Point]]]:
    """Return lines of (name, kind, points); of a single benchmark both placements."""
    lines = []
    for number, record in enumerate(records):
        name = record["hosts"][0] if inside else f"run {number + 1}" if len(records) > 1 else ""
        state = "" if record["state"] in ("pass", "skipped") else f" ({record['state']})"
        kind = "failed" if record["state"] == "fail" else "main" if len(records) == 1 else "other"
        for placement in [""] if len(records) > 1 else ["out_of_place", "in_place"]:
            points = _points(record, placement)
            label = " ".join(part for part in (name, placement.replace("_", " ")) if part)
            if points:
                lines.append((f"{label}{state}", "other" if placement == "in_place" else kind, points))
    return lines


def _expected(records: Sequence[Data]) -> list[tuple[str, str, list[Point]]]:
    """Return level lines of what is expected, and of the least that passes."""
    sizes = [x for record in records for x, _ in _points(record)]
    levels: dict[str, tuple[str, float]] = {}
    for record in records:
        expected = record.get("expected") or {}
        source = f" ({expected['source']})" if expected.get("source") else ""
        if expected.get("busbw"):
            levels[f"expected {expected['busbw']:.4g} GB/s{source}"] = "expected", float(expected["busbw"])
        if expected.get("gate"):
            levels[f"at least {expected['gate']:.4g} GB/s"] = "expected least", float(expected["gate"])
    return [
        (name, kind, [(min(sizes), level), (max(sizes), level)]) for name, (kind, level) in list(levels.items())[:4]
    ]
