# SPDX-License-Identifier: Apache-2.0
"""Read the progress of one log, line after line, as the lines before may say what a line means.

The steps of an epoch are counted through the whole run. A bar without a name counts if a loss of the training is
printed beside it. A table has the names of its columns in its first line. A loss below a heading such as `Test:` is
none of the training. With a pattern of the job's own, each line stands alone.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable

from ....base.late_pattern import late_pattern
from . import progress_forms
from .progress import DEFAULT_PATTERN, MAX_LINE, Metrics, compile_pattern, in_place, merge, parse_line

# Upper bounds: lines below a heading that belong to it, and totals of bars that are remembered.
_MAX_BELOW, _MAX_TOTALS = 20, 16
_EPOCH_HEADING = late_pattern(r"(?i)\W{0,40}epoch\W{1,4}(\d{1,6})(?:\s?(?:/|of)\s?(\d{1,6}))?\W{0,40}")
# The number of epochs, in the arguments that a program prints.
_EPOCHS = late_pattern(r"(?i)(?<![\w.-])(?:(?:max|num|total)[_ ]epochs[\"']?\s?[=:]|epochs\s?=)\s?(\d{1,6})(?![\w.])")
_HEADING = late_pattern(r"[^\d:]{1,60}:\s{0,8}")
_TABLE = late_pattern(r"(?i)\s{0,80}(?:epoch|step|iter)\s.{0,500}loss")
_COLUMN = late_pattern(r"[A-Za-z][\w()./-]{0,40}")
_CELL = late_pattern(r"-?\d[\d.]{0,20}(?:/\d{1,9}|[KMGT])?")
# A name whose value a rich bar has on its next line, and what else such a line may have.
_WRAPPED = late_pattern(r"([\w./]{1,60}):\s{0,80}$")
_TIMES = late_pattern(r"\d{1,4}:\d\d:\d\d|-:--:--|•")
# Rich bars of Lightning count from `Epoch 0/2` to `Epoch 2/2`.
_FROM_ZERO = late_pattern(r"[━╸╺] \d{1,12}/\d{1,12} \d{1,4}:\d\d:\d\d")


def read_lines(log: str, pattern: str) -> list[Metrics]:
    """Return all progress of a log without times."""
    reader = Reader(pattern)
    return [found for line in log.splitlines() for found in [reader.read(line)] if found]


def merged(series: Iterable[Metrics]) -> Metrics:
    """Return the last value of each metric."""
    found: Metrics = {}
    for metrics in series:
        merge(found, metrics)
    return found


class Reader:
    """Reads the lines of one log in turn."""

    def __init__(self, pattern: str) -> None:
        """Read with this expression, or by progress_forms.py. Raises re.error."""
        self.pattern = compile_pattern(pattern)
        # Whether the steps so far count through the whole run, and whether the last line ended an epoch or the run.
        self.whole, self.over = False, False
        # The number of epochs: of the arguments, and of the last line that has it.
        self._arguments: float | None = None
        self._epochs: float | None = None
        # The number of the first epoch, and whether steps are known to begin again with each.
        self._first: int | None = None
        self._within: bool | None = None
        # The name and the total of the training's bar; the last bar that may be it, and the number of losses that were
        # printed beside a bar of each total.
        self._trained: tuple[str, float] | None = None
        self._beside: Metrics = {}
        self._totals: Counter[float] = Counter()
        self._columns: list[str] = []
        self.begin()

    def begin(self) -> None:
        """Note that an attempt begins, whose steps may be earlier ones."""
        # Epoch, step and steps of the last line with a step; the epoch of the last heading; whether a full bar without
        # an epoch began again.
        self._last: tuple[float | None, float, float | None] | None = None
        self._heading: float | None = None
        self._again = False
        # Lines that may still belong to a heading of an evaluation, whether the last line is of a rich bar, and the
        # name at its end.
        self._below, self._rich, self._wrapped = 0, False, ""

    def read(self, line: str) -> Metrics | None:
        """Return the metrics of the next line, None if it is no progress line."""
        # A note of ours may quote a program with its arguments, such as `--loss 1`.
        if line.startswith("trainyard: "):
            self.over = False
            return None
        if self.pattern.pattern != DEFAULT_PATTERN:
            found = parse_line(line, self.pattern) or {}
            self.over = found.get("step", 0.0) >= found.get("steps", math.inf)
            return found or None
        line, self.over = progress_forms.clean(line), False
        if len(line) > MAX_LINE or not line.strip():
            self._below = 0
            return None
        if self._is_heading(line):
            return None
        line = self._unwrapped(self._row(line))
        reading = progress_forms.read(line)
        values = in_place(self._training(reading))
        if not values:
            arguments = _EPOCHS.search(line)
            self._arguments = self._arguments or (float(arguments[1]) if arguments else None)
            return None
        below, self._below = self._below, 0
        if below and "step" not in values and "epoch" not in values:
            self._below = below - 1
            return None
        if self._first is None and _FROM_ZERO.search(line):
            self._first = 0
        return in_place(self._counted(values, reading))

    def _is_heading(self, line: str) -> bool:
        """Return whether a line is a heading, and note what it says."""
        epoch = _EPOCH_HEADING.fullmatch(line) if len(line) < 100 else None
        if epoch:
            self._heading, self._below = float(epoch[1]), 0
            self._epochs = float(epoch[2]) if epoch[2] else self._epochs
        elif line.rstrip()[-1] == ":" and not self._rich and _HEADING.fullmatch(line):
            self._below = _MAX_BELOW if progress_forms.is_aside(line) else 0
        return bool(epoch)

    def _row(self, line: str) -> str:
        """Return a row of a table with the names of its columns; another line as it is."""
        count = len(self._columns)
        if _TABLE.match(line) and all(map(_COLUMN.fullmatch, line.split())):
            self._columns = line.split()
        elif count and len(cells := line.split()) >= count and all(map(_CELL.fullmatch, cells[:2])):
            row = " | ".join(f"{name}: {cell}" for name, cell in zip(self._columns, cells))
            return f"{row} {' '.join(cells[count:])}"
        return line

    def _unwrapped(self, line: str) -> str:
        """Return a line below a rich bar with the name that stands at the end of the line before."""
        self._rich = "━" in line or (self._rich and line[0] == " ")
        if self._rich and self._wrapped and line[0] == " ":
            line = f"{self._wrapped}: {_TIMES.sub('', line).strip()}"
        name = _WRAPPED.search(line) if self._rich else None
        self._wrapped = name[1] if name else ""
        return line

    def _training(self, reading: progress_forms.Reading) -> Metrics:
        """Return the metrics of a line that is progress, or of a bar that other lines show to be the training's."""
        values, bar = reading.values, reading.bar
        key = re.sub(r"[\d\W]+", " ", reading.name).strip() if bar else ""
        name, total = self._trained or (None, None)
        if bar and not progress_forms.other_bar(reading.name):
            self._beside = bar
        if not values:
            # A logger may have printed something before the bar.
            known = name is not None and (key.endswith(name) if name else not reading.name.endswith(":"))
            return bar if bar and bar["steps"] == total and (known or key == name) else {}
        if bar and values.get("step") == bar["step"]:
            epoch, _, steps = self._last or (None, 0.0, None)
            if "loss" not in values and None not in (epoch, steps) and epoch == values.get("epoch"):
                # The bar of an evaluation has the name of its epoch, too, but another total.
                values = values if steps == bar["steps"] else {}
            self._trained = (key, bar["steps"]) if values else self._trained
        elif "loss" in values and "step" not in values and self._beside and not name:
            beside = self._beside["steps"]
            if len(self._totals) < _MAX_TOTALS or beside in self._totals:
                self._totals[beside] += 1
            self._trained = "", self._totals.most_common(1)[0][0]
            self._last = self._last or (None, self._beside["step"], beside)
        return values

    def _counted(self, values: Metrics, reading: progress_forms.Reading) -> Metrics:
        """Count the steps of an epoch through the whole run; without the number of epochs, their total is omitted."""
        step, steps, epoch = values.get("step"), values.get("steps"), values.get("epoch")
        last_epoch, last, last_steps = self._last or (None, None, None)
        if step is None:
            # The epoch is that of the steps: a table may count from another number.
            return values if last_epoch is None else {name: values[name] for name in values if name != "epoch"}
        if epoch is None and self._heading is not None:
            epoch = self._heading
            values = {**values, "epoch": epoch}
        self.over, self._last = steps is not None and step >= steps, (epoch, step, steps)
        if epoch is None:
            # The next attempt cannot tell with which of its bars it goes on, so these are not counted.
            self._again = self._again or bool(reading.bar and last is not None and step < last == last_steps == steps)
            self.whole = not self._again
            return {name: values[name] for name in values if name != "steps"} if self._again else values
        done, epochs = self._done(epoch, reading.epochs)
        share = step / steps * epochs - done if epochs and steps else 0.0
        if reading.within or not -1 <= share <= 2:
            self._within = True
        elif last_epoch is not None and last is not None and epoch > last_epoch and not self._within:
            self._within = step <= last
        likely = bool(self._epochs) and (not done or not 0 <= share <= 1)
        within = (likely if self._within is None else self._within) and done == int(done) and steps is not None
        self.whole = within or self._within is False
        if not within or steps is None:
            return values
        total = {"steps": epochs * steps} if epochs else {}
        return {**{name: values[name] for name in values if name != "steps"}, "step": done * steps + step, **total}

    def _done(self, epoch: float, stated: float | None) -> tuple[float, float | None]:
        """Return the number of epochs before this one, and of all, None where it is not known."""
        self._epochs = stated or self._epochs
        if self._first is None or epoch < self._first:
            self._first = int(epoch >= 1)
        done = max(0.0, epoch - self._first)
        # `Epoch 0/2` is mostly the first of three.
        epochs = self._epochs and self._epochs + (not self._first)
        if self._arguments and (epochs is None or epochs - self._arguments in (0, 1)):
            epochs = self._arguments
        return done, epochs if epochs and epochs > done else None
