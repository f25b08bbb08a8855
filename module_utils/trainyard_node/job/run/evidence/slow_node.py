# SPDX-License-Identifier: Apache-2.0
"""Read what slows a node down from its kernel, without rights or cost: load, pressure, quotas, heat.

This is evidence beside a slow rank. Sources: proc(5); the kernel's documents accounting/psi, admin-guide/cgroup-v2
(cpu.stat) and scheduler/sched-bwc; arch/x86/kernel/cpu/mce/therm_throt.c for thermal_throttle.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

_STALLED = re.compile(r"^some .*\bavg60=(\d+\.\d+)", re.MULTILINE)
# Minimum pressure that is reported, in percent of the last minute.
_MIN_PRESSURE = 5.0


class Counters(NamedTuple):
    """Periods of CPU quotas, those in which a process was throttled, and how often a CPU was too hot."""

    periods: int = 0
    throttled: int = 0
    hot: int = 0


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")[:10_000]
    except OSError:
        return ""


def _quota_files(pid: int, root: Path) -> Iterator[Path]:
    """Yield cpu.stat of all cgroups of a process, the innermost first."""
    for line in _text(root / f"proc/{pid}/cgroup").splitlines():
        number, names, place = (*line.split(":", 2), "", "")[:3]
        if number == "0" or "cpu" in names.split(","):
            base = root / ("sys/fs/cgroup" if number == "0" else "sys/fs/cgroup/cpu")
            inside = PurePosixPath(place.lstrip("/"))
            if ".." not in inside.parts:
                yield from (base / each / "cpu.stat" for each in (inside, *inside.parents))


def count(pids: list[int], root: Path = Path("/")) -> Counters:
    """Read the counters of these processes' cgroups and of all processors."""
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
    return Counters(periods, throttled, hot)


def texts(before: Counters, now: Counters, root: Path = Path("/")) -> list[str]:
    """Return facts that slow this node down, between two counts and in the last minute; its load always."""
    facts = []
    load = _text(root / "proc/loadavg").split()
    if load:
        facts.append(f"load {load[0]} (processors: {os.cpu_count()})")
    if now.throttled > before.throttled and now.periods > before.periods:
        share = 100 * (now.throttled - before.throttled) / (now.periods - before.periods)
        facts.append(f"held by a CPU quota in {min(100.0, share):.0f} % of its periods")
    if now.hot > before.hot:
        facts.append(f"processors slowed down by heat (times: {now.hot - before.hot})")
    for name, what in (("cpu", "processors"), ("memory", "memory"), ("io", "disks")):
        found = _STALLED.search(_text(root / "proc/pressure" / name))
        if found and float(found[1]) >= _MIN_PRESSURE:
            facts.append(f"something waits for {what} {float(found[1]):.0f} % of the time")
    return facts
