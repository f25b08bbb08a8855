# SPDX-License-Identifier: Apache-2.0
"""Read when a job counts as hung: the variables `job_hang_*`."""

from __future__ import annotations

import re

from ..run.logs.hang import DEFAULT_PAUSE, FIRST, PAUSE, STEP
from ..run.logs.progress import compile_pattern
from .job import Hang
from .operators import INSTEAD
from .values import Values


def parse(values: Values, operator: str) -> Hang | None:
    """Read the variables; None where nothing looks for hangs. `auto` looks where monitors do."""
    pattern = values.text("job_hang_pause_pattern") or DEFAULT_PAUSE
    try:
        compile_pattern(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        found, expected = f"not a regular expression: {error}", "one that finds the line before a pause"
        values.wrong("job_hang_pause_pattern", found, expected, "correct job_hang_pause_pattern")
    first_s, pause_s = values.number(FIRST), values.number(PAUSE)
    limit = values.given.get(STEP)
    # YAML reads a bare `off` as false.
    if limit in (False, "off", ""):
        return None
    after_s = values.count(STEP, "off", "auto")
    if operator and after_s is not None:
        expected = f"{INSTEAD}, whose monitors watch the ranks"
        values.wrong(STEP, f"{limit} with an {operator}", expected, f"leave {STEP} out")
    return Hang(after_s, first_s, pause_s, pattern)
