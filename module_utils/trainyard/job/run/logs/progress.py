# SPDX-License-Identifier: Apache-2.0
"""Progress of a training run, read from the log lines that training scripts print anyway.

A pattern is a regular expression with named groups; every group is one metric. The groups `step`, `steps`, `epoch`,
`loss` and `rate` have a fixed place in the progress line, any other group is shown under its own name.
"""

from __future__ import annotations

import functools
import math
import re
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from . import progress_forms

Metrics = dict[str, float]

# Stands in a plan for the built-in forms (progress_forms.py).
DEFAULT_PATTERN = "(?P<built_in>)"
# Values that scripts print for a loss that is not a number; digits replace them for patterns that match digits only.
_NOT_ANUMBER = re.compile(r"(?i)(?<![\w.])[-+]?(?:nan|inf(?:inity)?)\b")
# Parts of a pattern that require a number of decimals, or an exponent.
_DECIMALS, _EXPONENT = re.compile(r"\{([1-9])[,}]"), re.compile(r"[eE]\]?[\[\\(+-]")
# A value of these that is not a number is ignored.
PLACES = frozenset({"step", "steps", "epoch"})
# Named groups of a pattern, and how long the name of one may be, in characters.
MAX_METRICS, MAX_NAME = 64, 64
# A longer line is no progress line, and a user's pattern could take forever on it.
MAX_LINE = 2000


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a progress pattern without the FutureWarning about `[[` and the like, which nobody could place."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return re.compile(pattern)


def check_pattern(pattern: str) -> str:
    """Return what is wrong with a progress pattern, "" if it is valid."""
    try:
        groups = compile_pattern(pattern).groupindex
    except (re.error, OverflowError, RecursionError) as error:
        return f"not a regular expression: {error}"
    if len(groups) > MAX_METRICS or any(len(name) > MAX_NAME for name in groups):
        return f"too many named groups (at most {MAX_METRICS}), or too long a name (at most {MAX_NAME})"
    if not groups:
        return "a regular expression without named groups, such as (?P<step>[0-9]+)"
    return ""


def parse_line(line: str, pattern: re.Pattern[str]) -> Metrics | None:
    """Return the metrics of one log line, None if it is no progress line. Groups that are no number are omitted.

    With the default pattern, the lines that frameworks print are read.
    """
    line = progress_forms.clean(line)
    if len(line) > MAX_LINE:
        return None
    if pattern.pattern == DEFAULT_PATTERN:
        return in_place(progress_forms.read(line).values)
    match, lost = pattern.search(line), list[range]()
    if _NOT_ANUMBER.search(line) and (match is None or None in match.groups()):
        for form in _digits(pattern.pattern):
            digits, places = _with_digits(line, form)
            other = pattern.search(digits)
            if other and (match is None or _groups(other) > _groups(match)):
                match, lost = other, places
                break
    if match is None:
        return None
    metrics: Metrics = {}
    for name, text in match.groupdict().items():
        # `epoch2` and the like: one metric that has several possible places in a line.
        metric = name.rstrip("0123456789")
        if text is None:
            continue
        if any(match.start(name) in where for where in lost):
            text = "nan"
        value = progress_forms.number_of(text.strip(), line, metric in PLACES)
        if value is not None:
            metrics.setdefault(metric, value)
    return in_place(metrics)


def in_place(metrics: Metrics) -> Metrics | None:
    """Drop a step or an epoch that is not a number."""
    return {name: value for name, value in metrics.items() if math.isfinite(value) or name not in PLACES} or None


def _groups(match: re.Match[str]) -> int:
    return sum(text is not None for text in match.groups())


@functools.cache
def _digits(pattern: str) -> list[str]:
    """Return the forms of a number, one of which the pattern probably matches: few, as each costs a search."""
    counts = dict.fromkeys([4, *map(int, _DECIMALS.findall(pattern))])
    powers = ("", "e+00", "E+00") if _EXPONENT.search(pattern) else ("",)
    return [f"0.{'0' * count}{power}" for power in powers for count in counts]


def _with_digits(line: str, form: str) -> tuple[str, list[range]]:
    """Replace nan and inf by digits of this form; return the line and the places of the digits."""
    parts: list[str] = []
    lost: list[range] = []
    length = end = 0
    for match in _NOT_ANUMBER.finditer(line):
        parts += [line[end : match.start()], form]
        length += match.start() - end + len(form)
        lost.append(range(length - len(form), length))
        end = match.end()
    return "".join([*parts, line[end:]]), lost


def merge(known: Metrics, metrics: Metrics) -> None:
    """Add the metrics of the next line to those of the lines before, in place."""
    step = metrics.get("step")
    if step is not None and "steps" in known and not known.get("step", 0.0) <= step <= known["steps"]:
        # The known total is that of an epoch, or of an earlier attempt.
        del known["steps"]
    known.update(metrics)


def is_number(value: float | None) -> bool:
    """Return whether a metric is a number; JSON has None for nan and inf."""
    return value is not None and math.isfinite(value)


def leading(points: Mapping[int, int]) -> int | None:
    """Return the rank whose progress counts, by how many lines of progress each has printed; None where none has.

    It is the lowest that has printed at least half as many as any other: rank 0 where all print, the last one where
    rank 0 prints a line now and then.
    """
    most = max(points.values(), default=0)
    return min((rank for rank, count in points.items() if count and 2 * count >= most), default=None)


def strict(metrics: Mapping[str, float | None]) -> dict[str, float | None]:
    """Return metrics for a JSON file: nan and inf, which JSON does not have, become null."""
    return {name: value if is_number(value) else None for name, value in metrics.items()}


def follow(
    before: dict[str, Any] | None, point: Mapping[str, float | None], name: str = "loss"
) -> dict[str, Any] | None:
    """Return where a metric was not a number, after one more progress line; None if it always was.

    `first` and `last` are the first and last such places, `since` is the begin of the present stretch (None: it is a
    number again), `stretches` counts the stretches, `steps` is the length of the run.
    """
    if name not in point:
        return before
    if is_number(point[name]):
        return {**before, "since": None} if before else None
    here = {key: point.get(key) for key in ("step", "epoch", "elapsed_s")}
    before = before or {"since": None, "first": here, "last": here, "stretches": 0, "steps": None}
    return {
        "since": before["since"] or here,
        "first": before["first"],
        "last": here,
        "stretches": before["stretches"] + (before["since"] is None),
        "steps": point.get("steps") or before["steps"],
    }


def followed(series: Iterable[Mapping[str, float | None]], name: str = "loss") -> dict[str, Any] | None:
    """Return the result of follow() for a complete series."""
    found: dict[str, Any] | None = None
    for point in series:
        found = follow(found, point, name)
    return found


def _place(place: Mapping[str, float | None]) -> str:
    step, elapsed_s = place.get("step"), place.get("elapsed_s")
    if step is not None:
        return f"step {number(step)}"
    return "a line without a step" if elapsed_s is None else clock(elapsed_s)


def not_a_number_text(lost: Mapping[str, Any], name: str = "loss") -> str:
    """Return where in the run a metric is or was not a number: `loss is not a number since step 11 (of 25)`."""
    since, first, last = lost["since"], lost["first"], lost["last"]
    end = f" (of {number(lost['steps'])})" if lost["steps"] and first.get("step") is not None else ""
    if since:
        # If steps restart in each epoch, the step alone is ambiguous.
        epoch = f", epoch {number(since['epoch'])}" if since.get("epoch") is not None else ""
        before = f"; before that, too, first at {_place(first)}" if lost["stretches"] > 1 else ""
        return f"{name} is not a number since {_place(since)}{end}{epoch}{before}"
    if first == last:
        return f"{name} was not a number at {_place(first)}{end}"
    often = "" if lost["stretches"] == 1 else "off and on "
    to = _place(last).removeprefix("step ")
    if first.get("epoch") != last.get("epoch"):
        to = f"step {to} of epoch {number(last['epoch'])}" if last.get("epoch") is not None else to
    return f"{name} was not a number {often}from {_place(first)} to {to}{end}"


def number(value: float) -> str:
    """Format a metric: whole numbers without a point, others with four significant figures."""
    if not math.isfinite(value):
        return str(value)
    if value == int(value) and abs(value) < 1e15:
        return str(int(value))
    return f"{value:.4g}" if abs(value) < 10000 else f"{value:.0f}"


def clock(seconds: float) -> str:
    """Format a duration as h:mm:ss."""
    total = max(0, int(seconds))
    return f"{total // 3600}:{total // 60 % 60:02d}:{total % 60:02d}"


def metrics_text(metrics: Mapping[str, float | None], lost: Mapping[str, Any] | None = None) -> str:
    """Format metrics: step, epoch, loss, rate, then the others by name.

    `lost` is the result of follow() for the loss.
    """
    parts = []
    step, steps = metrics.get("step"), metrics.get("steps")
    if step is not None:
        parts.append(f"step {number(step)}" if steps is None else f"step {number(step)}/{number(steps)}")
    first = [name for name in ("epoch", "loss", "rate") if name in metrics]
    others = metrics.keys() - {*first, "step"} - ({"steps"} if step is not None else set())
    for name in [*first, *sorted(others)]:
        value = metrics[name]
        if value is not None and math.isfinite(value):
            parts.append(f"{name} {number(value)}")
        else:
            since = name == "loss" and lost and lost["since"]
            parts.append(not_a_number_text(lost or {}) if since else f"{name} is not a number")
    return "   ".join(parts)


def progress_line(
    ranks_running: int,
    world_size: int,
    elapsed_s: float,
    metrics: Mapping[str, float | None],
    lost: Mapping[str, Any] | None = None,
    ended: bool = False,
    left_s: float | None = None,
) -> str:
    """Return the line that the watcher prints each round, and once when the job has `ended`.

    `left_s` is how many seconds it will still take, None where that is not known.
    """
    ranks = f"{ranks_running}/{world_size} ranks running"
    if ended:
        plural = "s" if ranks_running > 1 else ""
        ranks = f"ending {ranks_running} rank{plural}" if ranks_running else "all ranks have ended"
    left = "" if left_s is None else f"{clock(left_s)} left"
    return "   ".join(filter(None, [clock(elapsed_s), ranks, metrics_text(metrics, lost), left]))
