# SPDX-License-Identifier: Apache-2.0
"""The kernel's log of this machine around the end of a job, as far as the caller may read it (mostly root).

The journal is tried first, as the ring buffer loses old lines.
"""

from __future__ import annotations

import math
import time
from typing import Any

from ....trainyard.job.run.logs import kernel_messages
from ...machine import commands

_LIMIT_S = 20
# How long before the end of a job messages are of interest, in seconds.
_LAST_S = 900.0


def window(monitor: Any, alive: bool, now: float) -> tuple[float, float] | None:
    """Return the time span to read; None unless the job failed. The user can write anything into monitor.json.

    It begins with the job: what the kernel said before is of others.
    """
    if not isinstance(monitor, dict) or alive:
        return None
    end = monitor.get("end")
    if isinstance(end, dict) and end.get("state") != "failed":
        return None
    finished = _time(end.get("finished") if isinstance(end, dict) else now, until=now, otherwise=now)
    since = finished - _LAST_S
    since = max(since, _time(monitor.get("started"), until=finished, otherwise=since))
    return since, min(now, finished + kernel_messages.AFTER_S)


def _time(value: Any, until: float, otherwise: float) -> float:
    return value if isinstance(value, (int, float)) and math.isfinite(value) and 0 < value <= until else otherwise


def read(since: float, until: float) -> list[dict[str, Any]]:
    """Return the messages of interest between two times, in s since the epoch; none where they cannot be read."""
    # On the clock of printk, which stops while the machine is suspended.
    booted = time.time() - time.monotonic()
    journal = ["journalctl", "-k", "-q", "--no-pager", "-o", "short-unix"]
    journal += ["--since", f"@{since:.0f}", "--until", f"@{until + 1:.0f}"]
    for argv in (journal, ["dmesg"]):
        outcome = commands.run(argv, _LIMIT_S)
        found = kernel_messages.parse(outcome.output.splitlines(), since, until, booted) if not outcome.status else []
        if found:
            return found
    return []
