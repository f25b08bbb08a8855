# SPDX-License-Identifier: Apache-2.0
"""Count the processes that the kernel's OOM killer ended, on this machine and in the job's slice.

Any user may read these counters; only root reads the kernel's log. Sources: mm/oom_kill.c (OOM_KILL in /proc/vmstat,
Linux 4.13), Documentation/admin-guide/cgroup-v2.rst (memory.events, which counts the groups below, too).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ...machine.tree import Tree

_COUNT = re.compile(r"^oom_kill (\d{1,18})$", re.MULTILINE)


def read(machine: Tree, slice_name: str) -> dict[str, int]:
    """Return the counters as `machine` and `job`; without those that this kernel does not have.

    `slice_name` is the slice of this process's job, "" where it has none.
    """
    group = re.search(
        rf"^0::(/.*?{re.escape(slice_name)})(?:/|$)", machine.text("/proc/self/cgroup") or "", re.MULTILINE
    )
    files = {"machine": "/proc/vmstat"}
    if slice_name and group:
        files["job"] = f"/sys/fs/cgroup{group[1]}/memory.events"
    found = {name: _COUNT.search(machine.text(file) or "") for name, file in files.items()}
    return {name: int(count[1]) for name, count in found.items() if count}


def since(before: Mapping[str, int], now: Mapping[str, int]) -> dict[str, Any]:
    """Return a failure's fields about kills between two readings; none where the counters are missing."""
    scope = next((name for name in ("job", "machine") if name in before and name in now), "")
    return {"oom_kills": max(0, now[scope] - before[scope]), "oom_of_job": scope == "job"} if scope else {}
