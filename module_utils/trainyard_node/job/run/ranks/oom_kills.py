# SPDX-License-Identifier: Apache-2.0
"""Count the processes that the kernel's OOM killer ended: those of the job, and those around it.

Any user may read these counters; only root reads the kernel's log. Sources: mm/oom_kill.c (OOM_KILL in /proc/vmstat,
Linux 4.13, which counts those of all containers), Documentation/admin-guide/cgroup-v2.rst (memory.events, which counts
the groups below, too).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from ....machine.tree import Tree

# The counters when the attempt began, in the folder of a job under mpirun.
BEFORE = "oom_kills.json"
_EVENTS = "/sys/fs/cgroup{}/memory.events"
_COUNT = re.compile(r"^oom_kill (\d{1,18})$", re.MULTILINE)


def read(machine: Tree, unit: str) -> dict[str, int]:
    """Return the counters as `job` and `machine`; without those that this kernel does not have.

    `unit` is that of this process's job, "" where it has none. `machine` counts in the nearest group around
    this process that counts, such as its container, otherwise on the whole machine.
    """
    group = _group(machine)
    of_job = re.search(rf"^.*/{re.escape(unit)}(?=/|$)", group) if unit else None
    around = [_EVENTS.format(str(path).rstrip("/")) for path in (PurePosixPath(group), *PurePosixPath(group).parents)]
    files = {"job": [_EVENTS.format(of_job[0])] if of_job else [], "machine": [*around, "/proc/vmstat"]}
    found = {}
    for name, candidates in files.items():
        counts = (_count(machine, file) for file in candidates)
        found[name] = next((count for count in counts if count is not None), None)
    return {name: count for name, count in found.items() if count is not None}


def _group(machine: Tree) -> str:
    group = re.search(r"^0::(/.*)$", machine.text("/proc/self/cgroup") or "", re.MULTILINE)
    return group[1] if group else "/"


def _count(machine: Tree, file: str) -> int | None:
    found = _COUNT.search(machine.text(file) or "")
    return int(found[1]) if found else None


def since(before: Mapping[str, int], now: Mapping[str, int]) -> dict[str, Any]:
    """Return a failure's fields about kills between two readings; none where the counters are missing."""
    scope = next((name for name in ("job", "machine") if name in before and name in now), "")
    return {"oom_kills": max(0, now[scope] - before[scope]), "oom_of_job": scope == "job"} if scope else {}
