# SPDX-License-Identifier: Apache-2.0
"""Formats of the files that outlive a command: which this version reads, and the finding for others.

Such a file has its number as `format`; 0 are files from before there were numbers. A number rises where an older
version would misread the file. Versions read all older formats, and refuse newer ones before they change anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from .findings import Finding

FIELD = "format"
HEADLINE = "{count} {findings}: nothing was changed."
NEWER = "it has format "
_OTHERS = "a newer checkout, or the one that wrote it"


class Format(NamedTuple):
    """A kind of file, and the newest format that this version knows, which is the one that it writes."""

    what: str
    newest: int = 1


# On the controller, in runs/: by job, by cluster.
PLAN = Format("plan.json of a job")
SUMMARY = Format("summary.json of a job")
REMOVED = Format("removed.json of a job")
SUBMITTED = Format("submitted.json of a job")
EXCLUDED = Format("the record of excluded hosts")
FACTS = Format("cached facts of nodes")
UPGRADE = Format("table.json of a driver upgrade")
# On a node: one number for all files in a job's folder, in node_plan.json.
JOB_FOLDER = Format("a job's folder on a node")


def stamped(content: Mapping[str, Any], form: Format) -> dict[str, Any]:
    """Return the content with the number of its format."""
    return {FIELD: form.newest, **{name: value for name, value in content.items() if name != FIELD}}


def misread(content: Any, form: Format) -> str:
    """Return why a file with this content cannot be read, "" where it can: its format is unknown, or it is damaged."""
    if not isinstance(content, dict):
        return "it is damaged: no JSON object"
    number = content.get(FIELD, 0)
    if type(number) is not int or not 0 <= number <= form.newest:
        return f"{NEWER}{str(number)[:20]}, and this version reads {known(form)}"
    return ""


def is_newer(content: Any, form: Format) -> bool:
    """Return whether a newer version wrote a file, which must not be overwritten."""
    return misread(content, form).startswith(NEWER)


def known(form: Format) -> str:
    """Return the formats that this version reads."""
    return f"formats 0 to {form.newest}"


def finding(path: str, why: str, form: Format, written_by: str = "") -> Finding:
    """Return the finding for a file that cannot be read; `written_by` is the version that wrote it, if known."""
    expected = f"{form.what} in {known(form)}"
    others = f"{_OTHERS} ({written_by})" if written_by else _OTHERS
    action = f"use {others}; see docs/upgrade.md" if why.startswith(NEWER) else "restore it, or remove its folder"
    return Finding("state", f"{path}: {why}", expected, action)
