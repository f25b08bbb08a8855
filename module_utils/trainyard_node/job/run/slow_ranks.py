# SPDX-License-Identifier: Apache-2.0
"""How often this node's ranks are found asleep, and waiting for others: looks at them in a thread beside the monitor.

A light look reads /proc alone: the state of a rank's threads and where the main one sleeps (proc(5)). Only while the
head wants it, py-spy reads the stacks, too (stacks.py). No rank is stopped, signalled or traced. What is done with the
counts: ../../trainyard/job/slow_ranks.py.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ....trainyard.job.run import stacks as rules
from ....trainyard.job.run.slow_ranks import CLOSE_PERIOD_S, MOST_AT, PERIOD_S
from . import processes as procs
from . import slow_node as held_up
from . import stacks, units

# Seconds between two light looks, and between two at stacks; each is drawn anew, never in step with the steps.
LOOK_S, DUMP_S = 0.25, 0.5
# Threads of a rank that are looked at.
MOST_THREADS = 128
# After so many periods processes are looked for anew, also where none is missing.
_PERIODS = 6

Told = dict[str, Any]


def asleep(pid: int, proc: str = procs.PROC) -> bool | None:
    """Tell whether all threads of a process sleep, the main one for another thread; None where it is gone.

    The kernel says where a thread sleeps to who may read the process; where it says nothing, asleep is asleep.
    """
    state = _state(f"{proc}/{pid}/stat")
    if not state:
        return None
    if state != "S":
        return False
    with contextlib.suppress(OSError):
        where = Path(f"{proc}/{pid}/wchan").read_text(errors="replace")
        if where not in ("", "0") and not where.startswith("futex"):
            return False
    try:
        threads = os.listdir(f"{proc}/{pid}/task")[:MOST_THREADS]  # noqa: PTH208
    except OSError:
        return None
    return not any(_state(f"{proc}/{pid}/task/{thread}/stat") in ("R", "D") for thread in threads)


def _state(path: str) -> str:
    try:
        with open(path, "rb") as stat:  # noqa: PTH123 - four times a second for each thread
            fields = stat.read().rpartition(b")")[2].split()
    except OSError:
        return ""
    return fields[0].decode("ascii", "replace") if fields else ""


class Looker:
    """Looks at the ranks of this node beside its monitor, which asks now and then what was seen."""

    def __init__(self, job_dir: Path, spec: Mapping[str, Any]) -> None:
        """Take the job's folder and node_plan.json."""
        self._job_dir, self._spec = job_dir, spec
        self._ranks: list[stacks.Rank] = []
        self._started: dict[int, int | None] = {}
        self._tools: dict[int, str] = {}
        self._age = _PERIODS
        # Set by the monitor: whether stacks are looked at, too.
        self.closer = False
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._seen: dict[int, Counter[str]] = {}
        self._places: dict[int, Counter[str]] = {}
        self._told_at = time.monotonic()
        # What held this node up before it looked closer.
        self._before: held_up.Counted | None = None

    def told(self) -> Told | None:
        """Return what was seen since the last time; None as long as it is not time to tell. It never waits."""
        now = time.monotonic()
        if not self._spec.get("slow_ranks"):
            return None
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        if now - self._told_at < (CLOSE_PERIOD_S if self.closer else PERIOD_S):
            return None
        self._told_at = now
        with self._lock:
            seen, places, ranks = self._seen, self._places, self._ranks
            self._seen, self._places = {}, {}
        of_ranks = [
            {
                "rank": rank.rank,
                "device": stacks.device(rank.env)[: rules.MOST_NAME],
                "at": next((place for place, _ in places.get(rank.rank, Counter()).most_common(1)), ""),
                **{name: seen[rank.rank][name] for name in ("looks", "asleep", "dumps", "waited")},
            }
            for rank in ranks
            if rank.rank in seen
        ]
        return {"ranks": of_ranks, "node": self._held_up([rank.pid for rank in ranks])} if of_ranks else None

    def _held_up(self, pids: list[int]) -> list[str]:
        if not self.closer:
            self._before = None
            return []
        counted = held_up.count(pids)
        self._before = self._before or counted
        return held_up.texts(self._before, counted)

    def _run(self) -> None:
        find_at = dump_at = time.monotonic()
        while True:
            time.sleep(LOOK_S * random.uniform(0.5, 1.5))  # noqa: S311
            # What the ranks do to their files and processes must not end this; and nobody reads what it would say.
            with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
                now = time.monotonic()
                if now >= find_at:
                    find_at = now + PERIOD_S
                    self._find()
                self._look()
                if self.closer and now >= dump_at:
                    self._dump()
                    dump_at = time.monotonic() + DUMP_S * random.uniform(0.5, 1.5) - LOOK_S  # noqa: S311

    def _find(self) -> None:
        """Find the processes of the ranks, where one is gone, and now and then."""
        self._age += 1
        there = self._ranks and all(procs.start_time(pid) == began for pid, began in self._started.items())
        if there and self._age < _PERIODS:
            return
        spec, self._age = self._spec, 0
        slice_name = units.slice_name(spec["job_id"]) if spec["supervision"] == "systemd" else ""
        known = stacks.started_ranks(self._job_dir, spec["processes"])
        found = stacks.of_job(spec["job_id"], self._job_dir, slice_name, known)
        found = [rank for rank in found if rank.rank < spec["world_size"]]
        with self._lock:
            self._ranks = found
        self._started = {rank.pid: procs.start_time(rank.pid) for rank in found}
        self._tools = {rank.pid: path for rank in found for path in [stacks.tool(rank, spec.get("venvs", ""))] if path}

    def _look(self) -> None:
        for rank in self._ranks:
            sleeps = asleep(rank.pid)
            if sleeps is not None:
                self._count(rank.rank, looks=1, asleep=int(sleeps))

    def _dump(self) -> None:
        """Read the stacks once. A rank that waits for nobody has a place, for whoever looks into it."""
        for pid, (threads, _) in stacks.dump(self._ranks, self._tools).items():
            rank = next(each.rank for each in self._ranks if each.pid == pid)
            state, wchan, _ = stacks.seen(pid)
            if threads and state:
                frames = threads.get("MainThread", [])
                waits = rules.waiting(frames, state)
                self._count(rank, dumps=1, waited=int(waits))
                if not waits:
                    place = rules.place({"frames": frames, "state": state, "wchan": wchan})[:MOST_AT]
                    with self._lock:
                        self._places.setdefault(rank, Counter())[place] += 1

    def _count(self, rank: int, **counts: int) -> None:
        with self._lock:
            self._seen.setdefault(rank, Counter()).update(counts)
