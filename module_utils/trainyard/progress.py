# SPDX-License-Identifier: Apache-2.0
"""Progress of a training run, read from the log lines that training scripts print anyway.

A pattern is a regular expression with named groups; every group is one metric. The groups `step`, `steps`, `epoch`,
`loss` and `rate` have a fixed place in the progress line, any other group is shown under its own name.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Mapping

Metrics = dict[str, float]

_NUMBER = r"[-+]?(?:(?:\d+(?:,\d{3})*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|(?:nan|inf)\b)"

# Two forms in one: `step 40/200 epoch 2 loss 0.1234 rate 5123.4` (with `:`, `=` or `[..]` between, in any of the usual
# spellings) and MindSpore's LossMonitor, `epoch: 1 step: 1, loss is 2.3`.
DEFAULT_PATTERN = (
    r"(?i)(?:\bepoch\b\W{0,3}(?P<epoch>\d+)(?:\s{0,3}/\s{0,3}\d+)?\D{0,12}?)?"
    r"\bstep\b\W{0,3}(?P<step>\d+)(?:\s{0,3}/\s{0,3}(?P<steps>\d+))?"
    r"(?:.{0,40}?\bepoch\b\W{0,3}(?P<epoch2>\d+))?"
    r".{0,80}?\bloss\b(?:\s{1,3}is)?\W{0,3}?(?P<loss>" + _NUMBER + r")"
    r"(?:.{0,40}?\brate\b\W{0,3}(?P<rate>" + _NUMBER + r"))?"
)
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
    if not groups:
        return "a regular expression without named groups, such as (?P<step>[0-9]+)"
    return ""


def parse_line(line: str, pattern: re.Pattern[str]) -> Metrics | None:
    """Read the metrics of one log line; None when it is not a progress line. Groups that are no number are left out."""
    if len(line) > MAX_LINE:
        return None
    match = pattern.search(line)
    if match is None:
        return None
    metrics: Metrics = {}
    for name, text in match.groupdict().items():
        if text is None:
            continue
        try:
            # `epoch2` and the like: one metric that may stand in either of two places of a line.
            metrics.setdefault(name.rstrip("0123456789"), float(text.replace(",", "")))
        except ValueError:
            continue
    return metrics or None


def read_series(log: str, pattern: str) -> list[Metrics]:
    """Read all progress of a log, where nobody noted when each line was written.

    Without times a curve needs steps that rise, over the whole run: lines of another kind end the series.
    """
    compiled = compile_pattern(pattern)
    series = [found for line in log.splitlines() for found in [parse_line(line, compiled)] if found]
    steps = [point.get("step", math.nan) for point in series]
    rising = all(later > earlier for earlier, later in zip(steps, steps[1:]))
    return series if rising else series[-1:]


def strict(metrics: Mapping[str, float]) -> dict[str, float | None]:
    """Return metrics for a JSON file: nan and inf, which JSON does not have, become null."""
    return {name: value if math.isfinite(value) else None for name, value in metrics.items()}


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


def metrics_text(metrics: Mapping[str, float]) -> str:
    """Write metrics in the order in which one reads them: step, epoch, loss, rate, then the others by name."""
    rest = dict(metrics)
    parts = []
    if "step" in rest:
        step, steps = number(rest.pop("step")), rest.pop("steps", None)
        parts.append(f"step {step}" if steps is None else f"step {step}/{number(steps)}")
    for name in ("epoch", "loss", "rate"):
        if name in rest:
            parts.append(f"{name} {number(rest.pop(name))}")
    parts += [f"{name} {number(value)}" for name, value in sorted(rest.items())]
    return "   ".join(parts)


def progress_line(ranks_running: int, world_size: int, elapsed_s: float, metrics: Mapping[str, float]) -> str:
    """Write the line that the watcher prints each round."""
    line = f"{clock(elapsed_s)}   {ranks_running}/{world_size} ranks running"
    return f"{line}   {metrics_text(metrics)}" if metrics else line
