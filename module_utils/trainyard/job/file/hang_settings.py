# SPDX-License-Identifier: Apache-2.0
"""When a job counts as hung, as a job file says it: the variables `job_hang_*`. Times are seconds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ...findings.findings import Finding
from ..run.hang import DEFAULT_PAUSE, FIRST, PAUSE, STEP
from ..run.progress import compile_pattern
from .variables import VARIABLES

OFF, AUTO = "off", "auto"


def parse(given: Mapping[str, Any]) -> tuple[dict[str, Any] | None, list[Finding]]:
    """Read the variables: `after_s` (None: auto), `first_s`, `pause_s`, `pause_pattern`; None where it is off."""
    findings: list[Finding] = []

    def wrong(key: str, found: str, expected: str) -> None:
        findings.append(Finding(key, found, expected, f"correct {key}"))

    def seconds(key: str, words: tuple[str, ...] = ()) -> int:
        variable = VARIABLES[key]
        value = given.get(key)
        value = variable.default if value is None else value
        number = int(value) if str(value).isdecimal() and len(str(value)) < 12 else -1
        if isinstance(value, bool) or not variable.least <= number <= variable.most:
            expected = " or ".join([*words, f"whole seconds {variable.range}"])
            wrong(key, repr(value), expected)
        return number

    pattern = str(given.get("job_hang_pause_pattern") or DEFAULT_PAUSE)
    try:
        compile_pattern(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        wrong("job_hang_pause_pattern", f"not a regular expression: {error}", "one that finds the line before a pause")
    limits = {"first_s": seconds(FIRST), "pause_s": seconds(PAUSE), "pause_pattern": pattern}
    wanted = given.get(STEP)
    # YAML reads a bare `off` as false.
    if wanted in (None, False, OFF, ""):
        return None, findings
    after_s = None if wanted == AUTO else seconds(STEP, (OFF, AUTO))
    if given.get("job_scheduler", "ssh") != "ssh":
        wrong(STEP, f"{wanted} with job_scheduler: {given['job_scheduler']}", "ssh: nobody else watches the ranks")
    return {"after_s": after_s, **limits}, findings
