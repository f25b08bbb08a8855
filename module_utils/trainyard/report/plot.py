# SPDX-License-Identifier: Apache-2.0
"""Plots of pages as plain SVG paths, so that a page needs no library, opens at once and prints.

Coordinates lie between the edges below; templates/report/parts.html.j2 stretches them to the size of the drawing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Point = tuple[float, float]

# The edges of a drawing, y downwards.
LEFT, RIGHT, TOP, BOTTOM = 0.0, 1000.0, 0.0, 200.0


@dataclass(frozen=True)
class Line:
    """A path with its name, and the class by which the page colors it."""

    name: str
    kind: str
    path: str


@dataclass(frozen=True)
class Plot:
    """Lines, and the places and texts of ticks."""

    lines: list[Line]
    x_ticks: list[tuple[float, str]]
    y_ticks: list[tuple[float, str]]


def plot(
    lines: Sequence[tuple[str, str, Sequence[Point]]],
    x_ticks: Sequence[tuple[float, str]] = (),
    *,
    log_x: bool = False,
    log_y: bool = False,
) -> Plot:
    """Draw lines of (name, kind, points); values without a place on an axis are breaks.

    At least one value has a place, and places of logarithmic axes are positive.
    """
    places = [x for _, _, points in lines for x, _ in points]
    values = [y for _, _, points in lines for _, y in points if is_drawn(y)]
    to_x = scale(min(places), max(places), LEFT, RIGHT, log=log_x)
    ticks = _powers(min(values), max(values)) if log_y else nice(min(values), max(values))
    to_y = scale(ticks[0], ticks[-1], BOTTOM, TOP, log=log_y)
    # A step has no halves.
    whole = all(float(x).is_integer() for x in places)
    round_ticks = [
        (tick, short(tick)) for tick in nice(min(places), max(places), 8) if float(tick).is_integer() or not whole
    ]
    return Plot(
        [Line(name, kind, _path(points, to_x, to_y)) for name, kind, points in lines],
        [(round(to_x(x), 1), text) for x, text in x_ticks or round_ticks if min(places) <= x <= max(places)],
        [(round(to_y(tick), 1), short(tick)) for tick in ticks],
    )


def _path(points: Sequence[Point], to_x: Callable[[float], float], to_y: Callable[[float], float]) -> str:
    path, begin = [], True
    for x, value in points:
        if is_drawn(value):
            path.append(f"{'M' if begin else 'L'}{to_x(x):.1f} {to_y(value):.1f}")
        begin = not is_drawn(value)
    return "".join(path)


def is_drawn(value: float) -> bool:
    """Tell whether a value has a place on an axis."""
    return math.isfinite(value) and abs(value) < 1e100


def scale(low: float, high: float, begin: float, end: float, *, log: bool = False) -> Callable[[float], float]:
    """Return the function that maps `low` to `begin` and `high` to `end`."""
    axis = math.log10 if log else float
    first, span = axis(low), (axis(high) - axis(low)) or 1.0
    return lambda value: begin + (axis(value) - first) / span * (end - begin)


def _powers(low: float, high: float) -> list[float]:
    """Return powers of ten that cover the range."""
    least, most = math.floor(math.log10(low)), math.ceil(math.log10(high))
    every = -(-(most - least) // 6) or 1
    return [10.0**power for power in range(least, most + every, every)]


def nice(low: float, high: float, most: int = 5) -> list[float]:
    """Return at most about `most` round numbers that cover the range from `low` to `high`."""
    rough = max((high - low) or abs(high) or 1.0, 1e-90) / most
    exponent = math.floor(math.log10(rough))
    power = 10.0**exponent
    width = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first, last = math.floor(low / width), math.ceil(high / width)
    digits = max(12, 2 - exponent)
    return [round(number * width, digits) for number in range(first, max(last, first + 1) + 1)]


def short(value: float) -> str:
    """Write a number for a tick: 0.5, 2000, 1e-5."""
    if value and (abs(value) >= 1e6 or abs(value) < 1e-3):
        return f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e")
    return f"{value:.6g}"
