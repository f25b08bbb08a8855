# SPDX-License-Identifier: Apache-2.0
"""The curves of a job's page. A curve has breaks where its values are no number, and where the job restarted."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..base.redaction import safe_text
from ..base.spans import stretches
from ..job.run.logs.progress import followed, not_a_number_text
from .plot import LEFT, RIGHT, Plot, Point, is_drawn, plot, scale

Data = Mapping[str, Any]
Series = Sequence[Mapping[str, float]]

# A curve of more points looks the same; of each stretch the least and the greatest stay, so that no peak is lost.
MAX_POINTS = 1000
MAX_CURVES = 6
MAX_STRETCHES = 50
# Metrics that fall over orders of magnitude.
_LOSS = re.compile("loss|ppl|perplexity|error")
_PLACES = frozenset({"step", "steps", "epoch", "elapsed_s"})


@dataclass(frozen=True)
class Curve:
    """A metric over the run. `logarithmic` is None where a logarithmic axis would show nothing more."""

    name: str
    x_name: str
    label: str
    lost: str
    linear: Plot | None = None
    logarithmic: Plot | None = None
    # Left edge and width of each stretch without numbers, and the place of each restart.
    gaps: list[Point] = field(default_factory=list)
    restarts: list[float] = field(default_factory=list)


def curves(series: Series, loss: Data | None, restarts: Iterable[float] = ()) -> list[Curve]:
    """Return the curves of a run: loss and rate first, then the others by name.

    `loss` is where the loss was not a number, `restarts` are the times of restarts in seconds since the start.
    """
    names = {name for point in series for name in point} - _PLACES
    order = [name for name in ("loss", "rate") if name in names] + sorted(names - {"loss", "rate"})
    found = (_curve(name, series, loss if name == "loss" else None, list(restarts)) for name in order[:MAX_CURVES])
    return [curve for curve in found if curve.linear or curve.lost]


def _curve(name: str, series: Series, loss: Data | None, restarts: Sequence[float]) -> Curve:
    points = [point for point in series if isinstance(point.get(name), (int, float))]
    # The series of a long run does not have every line.
    lost = loss or followed(points, name)
    text = not_a_number_text(lost, safe_text(name)) if lost else ""
    x_name = next((each for each in ("step", "epoch") if _rises(points, each)), "elapsed_s")
    x_title = "seconds since the start" if x_name == "elapsed_s" else x_name
    finite = [point[name] for point in points if is_drawn(point[name])]
    if len(finite) < 2:
        return Curve(safe_text(name), x_title, "", text)
    places = [point.get(x_name, 0.0) for point in points]
    to_x = scale(min(places), max(places), LEFT, RIGHT)
    lines = [(safe_text(name), "main", thinned(_with_breaks(points, name, x_name, restarts)))]
    gaps = stretches(at for at, point in enumerate(points) if not is_drawn(point[name]))
    edges = [(to_x(places[first]), to_x(places[last])) for first, last in gaps[:MAX_STRETCHES]]
    after = (
        next((x for x, point in zip(places, points) if point.get("elapsed_s", 0.0) >= at), None) for at in restarts
    )
    return Curve(
        safe_text(name),
        x_title,
        f"{safe_text(name)} over the run, from {finite[0]:.4g} to {finite[-1]:.4g}",
        text,
        plot(lines),
        plot(lines, log_y=True) if _falls(name, finite) else None,
        [(round(left, 1), round(max(2.0, right - left), 1)) for left, right in edges],
        [round(to_x(x), 1) for x in after if x is not None],
    )


def together(series: Sequence[Series], names: Sequence[str]) -> list[Curve]:
    """Return the curves of several runs, each metric in one drawing with a line for each run of these names."""
    metrics = {name for each in series for curve in curves(each, None) if curve.linear for name in [curve.name]}
    order = [name for name in ("loss", "rate") if name in metrics] + sorted(metrics - {"loss", "rate"})
    return [_of_runs(metric, series, names) for metric in order]


def _of_runs(metric: str, series: Sequence[Series], names: Sequence[str]) -> Curve:
    points_of = [[point for point in each if isinstance(point.get(metric), (int, float))] for each in series]
    known = [points for points in points_of if points]
    x_name = next((each for each in ("step", "epoch") if all(_rises(points, each) for points in known)), "elapsed_s")
    lines = [
        (name, kind, thinned(_with_breaks(points, metric, x_name, ())))
        for name, kind, points in zip(names, ("main", "second"), points_of)
        if points
    ]
    values = [y for _, _, points in lines for _, y in points if is_drawn(y)]
    return Curve(
        metric,
        "seconds since the start" if x_name == "elapsed_s" else x_name,
        f"{metric} of {' and '.join(name for name, _, _ in lines)}",
        "",
        plot(lines),
        plot(lines, log_y=True) if _falls(metric, values) else None,
    )


def _falls(name: str, values: Sequence[float]) -> bool:
    """Tell whether a metric falls over orders of magnitude."""
    return bool(_LOSS.search(name)) and 1e-100 < min(values) <= max(values) / 10


def _rises(points: Series, name: str) -> bool:
    """Tell whether each point has a greater value than the one before."""
    values = [point.get(name, math.nan) for point in points]
    return all(later > earlier for earlier, later in zip(values, values[1:])) and not any(map(math.isnan, values))


def _with_breaks(points: Series, name: str, x_name: str, restarts: Sequence[float]) -> list[Point]:
    """Return the points of a metric, with one that is not a number between the attempts of a job."""
    found: list[Point] = []
    ahead = sorted(restarts)
    for point in points:
        at = point.get("elapsed_s", 0.0)
        if found and ahead and at >= ahead[0]:
            found.append((found[-1][0], math.nan))
        while ahead and at >= ahead[0]:
            ahead.pop(0)
        found.append((point.get(x_name, 0.0), point[name]))
    return found


def thinned(points: Sequence[Point], most: int = MAX_POINTS) -> list[Point]:
    """Return about `most` of the points: the first and last, of each stretch the least and the greatest, and breaks."""
    if len(points) <= most:
        return list(points)
    length = -(-2 * len(points) // most)
    remaining = {0, len(points) - 1}
    for start in range(0, len(points), length):
        stretch = range(start, min(start + length, len(points)))
        finite = [index for index in stretch if is_drawn(points[index][1])]
        remaining.update(index for index in stretch if not is_drawn(points[index][1]))
        if finite:
            remaining |= {min(finite, key=lambda at: points[at][1]), max(finite, key=lambda at: points[at][1])}
    return [points[index] for index in sorted(remaining)]
