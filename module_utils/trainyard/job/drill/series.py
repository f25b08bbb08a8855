# SPDX-License-Identifier: Apache-2.0
"""Steps and losses that a run has printed: its attempts, and how they differ from those of another run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import NamedTuple


class Point(NamedTuple):
    """A step that was printed, and its loss (nan: none)."""

    step: float
    loss: float


Series = Sequence[Point]


def read(points: Iterable[Mapping[str, float]]) -> list[Point]:
    """Return the steps of metrics.jsonl, whose lines without a step do not count."""
    known = [(point.get("step"), point.get("loss", math.nan)) for point in points]
    return [Point(step, loss) for step, loss in known if step is not None and math.isfinite(step)]


def merged(points: Iterable[Point]) -> list[Point]:
    """Return each step once: a bar prints it several times. The first line that has a loss counts."""
    found: list[Point] = []
    for point in points:
        if not found or found[-1].step != point.step:
            found.append(point)
        elif math.isnan(found[-1].loss):
            found[-1] = point
    return found


def attempts(points: Series, first_steps: Sequence[float | None]) -> list[list[Point]]:
    """Split the steps of a run at its restarts, by the first step that was printed after each (None: none was).

    Steps rise within an attempt, so that the last point with its first step is its begin.
    """
    parts: list[list[Point]] = []
    rest = list(points)
    for first in reversed(first_steps):
        begin = next((at for at in range(len(rest) - 1, -1, -1) if rest[at].step == first), len(rest))
        parts.insert(0, merged(rest[begin:]))
        rest = rest[:begin]
    return [merged(rest), *parts]


def rises(points: Series) -> bool:
    """Return whether each step is later than the one before."""
    return all(later.step > earlier.step for earlier, later in zip(points, points[1:]))


def stride(points: Series) -> float:
    """Return the number of steps between two printed ones, at least 1."""
    gaps = [later.step - earlier.step for earlier, later in zip(points, points[1:]) if later.step > earlier.step]
    return max(1.0, float(median(gaps))) if gaps else 1.0


def difference(one: float, other: float) -> float:
    """Return how much two losses differ, as a fraction of the greater one."""
    if one == other:
        return 0.0
    largest = max(abs(one), abs(other))
    return abs(one - other) / largest if math.isfinite(largest) else math.inf


def common(reference: Series, other: Series) -> list[tuple[float, float, float]]:
    """Return the steps of both runs with both losses, where these are known."""
    losses = {point.step: point.loss for point in reference}
    return [
        (step, losses[step], loss)
        for step, loss in other
        if step in losses and not math.isnan(losses[step]) and not math.isnan(loss)
    ]


def noise(reference: Series, others: Iterable[Series]) -> float | None:
    """Return by how much losses of equal steps differ between undisturbed runs; None where no step is common."""
    pairs = [pair for other in others for pair in common(reference, other)]
    return max((difference(one, other) for _, one, other in pairs), default=None)
