# SPDX-License-Identifier: Apache-2.0
"""Progress of a training run, read from the log lines that training scripts print anyway.

A pattern is a regular expression with named groups; every group is one metric. The groups `step`, `steps`, `epoch`,
`loss` and `rate` have a fixed place in the progress line, any other group is shown under its own name.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from . import progress_forms

Metrics = dict[str, float]

# Stands in a plan for the forms that are built in (progress_forms.py).
DEFAULT_PATTERN = "(?P<built_in>)"
# What scripts print for a loss that is not a number. In its place a pattern that knows digits only finds these.
_NOT_ANUMBER = re.compile(r"(?i)(?<![\w.])[-+]?(?:nan|inf(?:inity)?)\b")
_DIGITS = "0.0000"
# Of these a value that is not a number says nothing.
PLACES = frozenset({"step", "steps", "epoch"})
# Named groups of a pattern, and how long the name of one may be, in characters.
MOST_METRICS, MOST_NAME = 64, 64
# A longer line is no progress line, and a free-form pattern on it could take for ever.
MAX_LINE = 2000


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a progress pattern without a word about `[[` and its like, which later versions of Python may read anew.

    Such a warning would stand in the monitor's log and among Ansible's, where nobody knows what it speaks of.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return re.compile(pattern)


def check_pattern(pattern: str) -> str:
    """Say what is wrong with a progress pattern, or "" when nothing is."""
    try:
        groups = compile_pattern(pattern).groupindex
    except (re.error, OverflowError, RecursionError) as error:
        return f"not a regular expression: {error}"
    if len(groups) > MOST_METRICS or any(len(name) > MOST_NAME for name in groups):
        return f"too many named groups (at most {MOST_METRICS}), or too long a name (at most {MOST_NAME})"
    if not groups:
        return "a regular expression without named groups, such as (?P<step>[0-9]+)"
    return ""


def parse_line(line: str, pattern: re.Pattern[str]) -> Metrics | None:
    """Read the metrics of one log line; None when it is not a progress line. Groups that are no number are left out.

    Without a pattern of the job's own, lines that frameworks print by themselves are known, too.
    """
    line = progress_forms.clean(line)
    if len(line) > MAX_LINE:
        return None
    if pattern.pattern == DEFAULT_PATTERN:
        return _in_place(progress_forms.read(line) or {})
    match = pattern.search(line)
    digits, lost = _with_digits(line)
    if lost:
        other = pattern.search(digits)
        if other is None or (match is not None and _groups(other) <= _groups(match)):
            lost = []
        else:
            match = other
    if match is None:
        return None
    metrics: Metrics = {}
    for name, text in match.groupdict().items():
        # `epoch2` and the like: one metric that may stand in either of two places of a line.
        metric = name.rstrip("0123456789")
        if text is None:
            continue
        if any(match.start(name) in where for where in lost):
            text = "nan"
        value = progress_forms.number_of(text.strip(), line, metric in PLACES)
        if value is not None:
            metrics.setdefault(metric, value)
    return _in_place(metrics)


def _in_place(metrics: Metrics) -> Metrics | None:
    """Leave out a step or an epoch that is not a number."""
    return {name: value for name, value in metrics.items() if math.isfinite(value) or name not in PLACES} or None


def _groups(match: re.Match[str]) -> int:
    return sum(text is not None for text in match.groups())


def _with_digits(line: str) -> tuple[str, list[range]]:
    """Put digits where a line has nan or inf, for patterns such as [0-9.]+; return also where they stand now."""
    parts: list[str] = []
    lost: list[range] = []
    length = end = 0
    for match in _NOT_ANUMBER.finditer(line):
        parts += [line[end : match.start()], _DIGITS]
        length += match.start() - end + len(_DIGITS)
        lost.append(range(length - len(_DIGITS), length))
        end = match.end()
    return "".join([*parts, line[end:]]), lost


def read_lines(log: str, pattern: str) -> list[Metrics]:
    """Read all progress of a log, where nobody noted when each line was written."""
    compiled = compile_pattern(pattern)
    return [found for line in log.splitlines() for found in [parse_line(line, compiled)] if found]


def rising(series: Sequence[Metrics]) -> Sequence[Metrics]:
    """Return what a curve can be drawn of without times: all of it where steps rise over the whole run, else the last.

    Lines of another kind end the series.
    """
    steps = [point.get("step", math.nan) for point in series]
    return series if all(later > earlier for earlier, later in zip(steps, steps[1:])) else series[-1:]


def is_number(value: float | None) -> bool:
    """Tell whether a metric is a number. None is what a JSON file has for nan and inf."""
    return value is not None and math.isfinite(value)


def strict(metrics: Mapping[str, float | None]) -> dict[str, float | None]:
    """Return metrics for a JSON file: nan and inf, which JSON does not have, become null."""
    return {name: value if is_number(value) else None for name, value in metrics.items()}


def follow(
    known: dict[str, Any] | None, point: Mapping[str, float | None], name: str = "loss"
) -> dict[str, Any] | None:
    """Note whether a metric was a number in one more progress line; None as long as it always was.

    `first` and `last` are the places in the run where it was not, `since` is where that began which still lasts (None:
    it is a number again), `stretches` counts how often it began, `steps` is how many steps the run has.
    """
    if name not in point:
        return known
    if is_number(point[name]):
        return {**known, "since": None} if known else None
    here = {key: point.get(key) for key in ("step", "epoch", "elapsed_s")}
    known = known or {"since": None, "first": here, "last": here, "stretches": 0, "steps": None}
    began = known["since"] is None
    return {
        "since": here if began else known["since"],
        "first": known["first"],
        "last": here,
        "stretches": known["stretches"] + began,
        "steps": point.get("steps") or known["steps"],
    }


def followed(series: Iterable[Mapping[str, float | None]], name: str = "loss") -> dict[str, Any] | None:
    """Note of a whole series where a metric was not a number, as follow() does."""
    known: dict[str, Any] | None = None
    for point in series:
        known = follow(known, point, name)
    return known


def not_numbers(values: Sequence[float]) -> list[tuple[int, int]]:
    """Return the stretches of a series in which it is not a number, as their first and last places."""
    found: list[tuple[int, int]] = []
    for at, value in enumerate(values):
        if math.isfinite(value):
            continue
        if found and found[-1][1] == at - 1:
            found[-1] = (found[-1][0], at)
        else:
            found.append((at, at))
    return found


def _place(place: Mapping[str, float | None]) -> str:
    step, elapsed_s = place.get("step"), place.get("elapsed_s")
    if step is not None:
        return f"step {number(step)}"
    return "a line without a step" if elapsed_s is None else clock(elapsed_s)


def not_a_number_text(known: Mapping[str, Any], name: str = "loss") -> str:
    """Say where in the run a metric is not a number, or was not: `loss is not a number since step 11 (of 25)`."""
    since, first, last = known["since"], known["first"], known["last"]
    end = f" (of {number(known['steps'])})" if known["steps"] and first.get("step") is not None else ""
    if since:
        # Where steps count from 1 in each epoch, the step alone does not say where.
        epoch = f", epoch {number(since['epoch'])}" if since.get("epoch") is not None else ""
        before = f"; before that, too, first at {_place(first)}" if known["stretches"] > 1 else ""
        return f"{name} is not a number since {_place(since)}{end}{epoch}{before}"
    if first == last:
        return f"{name} was not a number at {_place(first)}{end}"
    often = "" if known["stretches"] == 1 else "off and on "
    to = _place(last).removeprefix("step ")
    if first.get("epoch") != last.get("epoch"):
        to = f"step {to} of epoch {number(last['epoch'])}" if last.get("epoch") is not None else to
    return f"{name} was not a number {often}from {_place(first)} to {to}{end}"


def number(value: float) -> str:
    """Write a metric: whole numbers without a point, others with four significant figures."""
    if not math.isfinite(value):
        return str(value)
    if value == int(value) and abs(value) < 1e15:
        return str(int(value))
    return f"{value:.4g}" if abs(value) < 10000 else f"{value:.0f}"


def clock(seconds: float) -> str:
    """Write a duration as h:mm:ss."""
    whole = max(0, int(seconds))
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def metrics_text(metrics: Mapping[str, float | None], lost: Mapping[str, Any] | None = None) -> str:
    """Write metrics in the order in which one reads them: step, epoch, loss, rate, then the others by name.

    `lost` is what follow() knows of the loss.
    """
    rest = dict(metrics)
    parts = []
    step, steps = rest.pop("step", None), rest.get("steps")
    if step is not None:
        rest.pop("steps", None)
        parts.append(f"step {number(step)}" if steps is None else f"step {number(step)}/{number(steps)}")
    for name in [*(name for name in ("epoch", "loss", "rate") if name in rest), *sorted(rest)]:
        if name not in rest:
            continue
        value = rest.pop(name)
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
) -> str:
    """Write the line that the watcher prints each round."""
    line = f"{clock(elapsed_s)}   {ranks_running}/{world_size} ranks running"
    return f"{line}   {metrics_text(metrics, lost)}" if metrics else line
