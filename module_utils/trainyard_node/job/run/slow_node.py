# SPDX-License-Identifier: Apache-2.0
"""What holds a node up, as far as its kernel says so at no cost and to everybody: load, pressure, quotas, heat.

Evidence beside a slow rank, no verdict. Sources: proc(5); the kernel's documents accounting/psi, admin-guide/cgroup-v2
(cpu.stat) and scheduler/sched-bwc; arch/x86/kernel/cpu/mce/therm_throt.c for thermal_throttle.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

_STALLED = re.compile(r"^some .*\bavg60=(\d+\.\d+)", re.MULTILINE)
# Of an hour-long pressure nobody asks; less than so many percent holds nobody up.
_LEAST_PRESSURE = 5.0


class Counted(NamedTuple):
    """What only grows: periods of CPU quotas, those in which a process was held, and times that a CPU was too hot."""

    periods: int = 0
    throttled: int = 0
    hot: int = 0


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")[:10_000]
    except OSError:
        return ""


def _quota_files(pid: int, root: Path) -> Iterator[Path]:
    """Yield cpu.stat of all groups of a process, the innermost first; of a container's own last."""
    for line in _text(root / f"proc/{pid}/cgroup").splitlines():
        number, names, place = (*line.split(":", 2), "", "")[:3]
        if number == "0" or "cpu" in names.split(","):
            base = root / ("sys/fs/cgroup" if number == "0" else "sys/fs/cgroup/cpu")
            inside = PurePosixPath(place.lstrip("/"))
            if ".." not in inside.parts:
                yield from (base / each / "cpu.stat" for each in (inside, *inside.parents))


def count(pids: list[int], root: Path = Path("/")) -> Counted:
    """Read what only grows, of the groups of these processes and of all processors."""
    periods = throttled = 0
    for path in {path for pid in pids for path in _quota_files(pid, root)}:
        found = dict(line.split(None, 1) for line in _text(path).splitlines() if len(line.split()) == 2)
        numbers = [found.get(name, "0").strip() for name in ("nr_periods", "nr_throttled")]
        if all(number.isdecimal() for number in numbers) and int(numbers[1]) > throttled:
            periods, throttled = map(int, numbers)
    hot = 0
    for path in root.glob("sys/devices/system/cpu/cpu[0-9]*/thermal_throttle/package_throttle_count"):
        number = _text(path).strip()
        hot = max(hot, int(number) if number.isdecimal() else 0)
    return Counted(periods, throttled, hot)


def texts(before: Counted, now: Counted, root: Path = Path("/")) -> list[str]:
    """Say what holds this node up, between two counts and in the last minute; its load always."""
    said = []
    load = _text(root / "proc/loadavg").split()
    if load:
        said.append(f"load {load[0]} (processors: {os.cpu_count()})")
    if now.throttled > before.throttled and now.periods > before.periods:
        share = 100 * (now.throttled - before.throttled) / (now.periods - before.periods)
        said.append(f"held by a CPU quota in {min(100.0, share):.0f} % of its periods")
    if now.hot > before.hot:
        said.append(f"processors slowed down by heat (times: {now.hot - before.hot})")
    for name, what in (("cpu", "processors"), ("memory", "memory"), ("io", "disks")):
        found = _STALLED.search(_text(root / "proc/pressure" / name))
        if found and float(found[1]) >= _LEAST_PRESSURE:
            said.append(f"something waits for {what} {float(found[1]):.0f} % of the time")
    return said
