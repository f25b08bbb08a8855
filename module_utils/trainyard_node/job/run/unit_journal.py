# SPDX-License-Identifier: Apache-2.0
"""Read what the journal of this node has of a job's unit: its start and end, and output of the monitor."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ....trainyard.base.visible import one_line
from ....trainyard.job.record.masking import mask_text
from ....trainyard.job.run.wire.answers import MAX_JOURNAL
from ...machine import as_user, commands
from . import job_folder
from .ranks import units

# Upper bounds: characters of a line, seconds.
_MAX_LINE, _LIMIT_S = 1000, 20
_NOT_ROOT = "none that this login may read; use trainyard_become, or add it to the group systemd-journal"


def read(job_id: str, job_dir: Path) -> dict[str, Any]:
    """Return the last `lines` about the job's unit, and the `problem`, or "".

    The job's secrets are masked while its node_plan.json has them. Nothing can be masked after the end of the job, so
    lines that ranks send to the journal themselves are not read.
    """
    argv = ["journalctl", "-q", "--no-pager", "-o", "short-iso-precise", "-n", str(MAX_JOURNAL)]
    outcome = commands.run([*argv, *_matches(units.unit_name(job_id))], _LIMIT_S)
    if outcome.status:
        return {"lines": [], "problem": one_line(outcome.output.strip(), _MAX_LINE)}
    lines = [line[: 4 * _MAX_LINE] for line in outcome.output.splitlines()[-MAX_JOURNAL:]]
    masked = as_user.in_folder(job_dir, lines, mask_lines, lines)
    problem = "" if lines or not os.geteuid() else _NOT_ROOT
    return {"lines": [one_line(line, _MAX_LINE) for line in masked], "problem": problem}


def _matches(unit: str) -> list[str]:
    """Return what selects systemd's own lines on a unit, core dumps, and what our code prints.

    The output of ranks goes to their logs; `stdout` of the unit is our code before it has its own log.
    """
    by_systemd, printed = ["_PID=1", f"UNIT={unit}"], ["_TRANSPORT=stdout", f"_SYSTEMD_UNIT={unit}"]
    return [*by_systemd, "+", *printed, "+", "_UID=0", f"COREDUMP_UNIT={unit}"]


def mask_lines(job_dir: Path, lines: Sequence[str]) -> list[str]:
    """Return lines with the job's secrets masked."""
    hidden = job_folder.known_secrets(job_dir)
    return [mask_text(line, hidden) for line in lines]
