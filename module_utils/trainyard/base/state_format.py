# SPDX-License-Identifier: Apache-2.0
"""Formats of the files that outlive a command: which this version reads, and the finding for others.

Such a file has its number as `format`, from 1 on. A number rises where an older version would misread the file.
Versions read all older formats, and refuse newer ones before they change anything.
The content of a file is checked against a shape beside the rules that read it; fields that only newer versions know
stay.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, NamedTuple

from .findings import Finding
from .shapes import Shape, misfit
from .visible import one_line, unwritable

FIELD = "format"
HEADLINE = "{count} {findings}: nothing was changed."
# How a reason begins where another version wrote the file: its format, or the name of its schema.
NEWER = ("it has format ", "it has schema ")
# The name of a finding on a damaged file, and of its line in a list.
DAMAGED = "damaged"
# Upper bounds for what a file holds: levels of lists and objects, digits of a number.
_MAX_DEPTH, _MAX_DIGITS = 32, 20
_OTHERS = "a newer checkout, or the one that wrote it"


class Format(NamedTuple):
    """A kind of file, and the newest format that this version knows, which is the one that it writes."""

    what: str
    newest: int = 1
    # What to do with a damaged one.
    repair: str = "restore it, or remove it"


_REMOVE_RUN = "remove the run: playbooks/clean.yml -e clean_runs=true -e job_id={run}"
# On the controller, in runs/: by job, by cluster. `{run}` is the name of the folder.
PLAN = Format("plan.json of a job", repair=f"restore it, or {_REMOVE_RUN}")
SUMMARY = Format(
    "summary.json of a job",
    repair="restore it, or remove it: playbooks/status.yml -e job_id={run} writes it anew from what the nodes know",
)
REMOVED = Format("removed.json of a job", repair="remove it: it has only when files of the job were removed")
SUBMITTED = Format(
    "submitted.json of a job", repair=f"restore it, as it has the scheduler's name of the job; or {_REMOVE_RUN}"
)
DRILL = Format("drill.json of a drill", repair="restore it, or remove it: the drill's runs are listed one by one then")
LAUNCH = Format("the mark of a launch")
REPORT = Format("report.json of a verification", repair="restore it, or remove its folder")
EXCLUDED = Format("the record of excluded hosts")
FACTS = Format("cached facts of nodes", repair="remove it")
UPGRADE = Format("table.json of a driver upgrade", repair="restore it, or move it away: it has what nodes had before")
# On a node: one number for all files in a job's folder, in node_plan.json.
JOB_FOLDER = Format("a job's folder on a node")


def stamped(content: Mapping[str, Any], form: Format) -> dict[str, Any]:
    """Return the content with the number of its format."""
    return {FIELD: form.newest, **{name: value for name, value in content.items() if name != FIELD}}


class DamagedError(ValueError):
    """A text that is none of ours; it says why."""


def loads(content: bytes | str) -> Any:
    """Read JSON that we wrote, None for a number that JSON does not have. Raises DamagedError."""
    try:
        text = content.decode() if isinstance(content, bytes) else content
        found = json.loads(text, parse_int=_int, parse_float=_float, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        raise DamagedError("no JSON") from None
    level = [found]
    for _ in range(_MAX_DEPTH):
        level = [
            each
            for value in level
            if isinstance(value, (list, dict))
            for each in (value if isinstance(value, list) else value.values())
        ]
    if level:
        raise DamagedError(f"nested more than {_MAX_DEPTH} levels deep")
    # Half of a surrogate pair can stand in JSON alone as an escape.
    if "\\ud" in text.lower() and (why := unwritable(found)):
        raise DamagedError(f"it holds {why}")
    return found


def _int(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise ValueError("a number of too many digits")
    return int(digits)


def _float(digits: str) -> float | None:
    found = float(digits)
    return found if math.isfinite(found) else None


def misread(content: Any, form: Format, shape: Shape = object) -> str:
    """Return why a file with this content cannot be read, "" where it can: its format is unknown, or it is damaged."""
    if not isinstance(content, dict):
        return "no JSON object"
    number = content.get(FIELD, 1)
    if type(number) is not int or not 1 <= number <= form.newest:
        return f"{NEWER[0]}{str(number)[:20]}, and this version reads {known(form)}"
    return one_line(misfit(content, shape))


def known(form: Format) -> str:
    """Return the formats that this version reads."""
    return f"formats 1 to {form.newest}" if form.newest > 1 else "format 1"


def finding(path: str, why: str, form: Format, written_by: str = "") -> Finding:
    """Return the finding for a file that cannot be read; `written_by` is the version that wrote it, if known."""
    expected = f"{form.what} in {known(form)}"
    if why.startswith(NEWER):
        others = f"{_OTHERS} ({written_by})" if written_by else _OTHERS
        return Finding("state", f"{path}: {why}", expected, f"use {others}; see docs/upgrade.md")
    return Finding(
        DAMAGED, f"{path} is damaged: {why}", expected, form.repair.replace("{run}", PurePath(path).parent.name)
    )


def line(found: Finding) -> str:
    """Return the finding as a line of a list."""
    if found.check != DAMAGED:
        return f"not read: {found.found}; {found.action}"
    return f"{DAMAGED}: {found.found.replace(' is damaged: ', ': ', 1)}; {found.action}"
