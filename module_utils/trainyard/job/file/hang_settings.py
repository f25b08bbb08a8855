# SPDX-License-Identifier: Apache-2.0
"""When a job counts as hung: the variables `job_hang_*`."""

from __future__ import annotations

import re

from ..run.hang import DEFAULT_PAUSE, FIRST, PAUSE, STEP
from ..run.progress import compile_pattern
from .job import Hang
from .values import Values
from .variables import VARIABLES

OFF, AUTO = "off", "auto"


def parse(values: Values, scheduler: str) -> Hang | None:
    """Read the variables; None where the check is off."""
    pattern = values.text("job_hang_pause_pattern") or DEFAULT_PAUSE
    try:
        compile_pattern(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        found, expected = f"not a regular expression: {error}", "one that finds the line before a pause"
        values.wrong("job_hang_pause_pattern", found, expected, "correct job_hang_pause_pattern")
    first_s, pause_s = _seconds(values, FIRST), _seconds(values, PAUSE)
    limit = values.given.get(STEP)
    # YAML reads a bare `off` as false.
    if limit in (None, False, OFF, ""):
        return None
    after_s = None if limit == AUTO else _seconds(values, STEP, (OFF, AUTO))
    if scheduler != "ssh":
        expected = "job_scheduler: ssh, whose monitors watch the ranks"
        values.wrong(STEP, f"{limit} with job_scheduler: {scheduler}", expected, f"leave {STEP} out")
    return Hang(after_s, first_s, pause_s, pattern)


def _seconds(values: Values, key: str, words: tuple[str, ...] = ()) -> int:
    variable = VARIABLES[key]
    value = values.given.get(key)
    value = variable.default if value is None else value
    number = int(value) if str(value).isdecimal() and len(str(value)) < 12 else -1
    if isinstance(value, bool) or not variable.least <= number <= variable.most:
        expected = " or ".join([*words, f"whole seconds {variable.range}"])
        values.wrong(key, repr(value), expected, f"correct {key}")
    return number
