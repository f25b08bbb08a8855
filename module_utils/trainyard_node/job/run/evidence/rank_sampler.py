# SPDX-License-Identifier: Apache-2.0
"""Sample how often this node's ranks sleep, and wait for others, in a thread beside the monitor.

A cheap sample reads only /proc: the state of a rank's threads and where the main one sleeps (proc(5)). While the head
requests it, py-spy also reads the stacks (stack_samples.py). No rank is stopped, signalled or traced.
trainyard/job/run/measure/slow_ranks.py evaluates the counts.
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

from .....trainyard.job.run.logs.stacks import MAX_NAME, place, waiting
from .....trainyard.job.run.measure.slow_ranks import MAX_AT, PERIOD_S, STACKS_PERIOD_S
from ..ranks import process_table
from . import slow_node, stack_samples

# Mean seconds between two cheap samples, and between two stacks; random, to avoid the rhythm of the steps.
SAMPLE_S, DUMP_S = 0.25, 0.5
# Upper bound for the sampled threads of a rank.
MAX_THREADS = 128
# Periods after which processes are searched again, even if none is missing.
_PERIODS = 6

Report = dict[str, Any]


def asleep(pid: int, proc: str = process_table.PROC) -> bool | None:
    """Return whether all threads of a process sleep, the main one for another thread; None if it has ended.

    If the kernel hides where the main thread sleeps, any sleep counts.
    """
    state = process_table.state(pid, proc)
    if not state:
        return None
    if state != "S":
        return False
    where = process_table.content(f"{proc}/{pid}/wchan")
    if where not in (b"", b"0") and not where.startswith(b"futex"):
        return False
    try:
        threads = os.listdir(f"{proc}/{pid}/task")[:MAX_THREADS]  # noqa: PTH208
    except OSError:
        return None
    return not any(process_table.state(f"{pid}/task/{thread}", proc) in ("R", "D") for thread in threads)


class Sampler:
    """Samples the ranks of this node beside its monitor, which fetches the counts now and then."""

    def __init__(self, job_dir: Path, node_plan: Mapping[str, Any]) -> None:
        """Take the job's folder and node_plan.json."""
        self._job_dir, self._node_plan = job_dir, node_plan
        self._ranks: list[stack_samples.Rank] = []
        self._started: dict[int, int | None] = {}
        self._tools: dict[int, str] = {}
        self._age = _PERIODS
        # Set by the monitor: whether to sample stacks, too.
        self.sample_stacks = False
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._seen: dict[int, Counter[str]] = {}
        self._places: dict[int, Counter[str]] = {}
        self._reported_at = time.monotonic()
        # Counters of the node when sampling of stacks began.
        self._before: slow_node.Counters | None = None

    def report(self) -> Report | None:
        """Return the counts since the last report; None until the next one is due. Never blocks."""
        now = time.monotonic()
        if not self._node_plan.get("slow_ranks"):
            return None
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        if now - self._reported_at < (STACKS_PERIOD_S if self.sample_stacks else PERIOD_S):
            return None
        self._reported_at = now
        with self._lock:
            seen, places, ranks = self._seen, self._places, self._ranks
            self._seen, self._places = {}, {}
        of_ranks = [
            {
                "rank": rank.rank,
                "device": stack_samples.device(rank.env)[:MAX_NAME],
                "at": next((place for place, _ in places.get(rank.rank, Counter()).most_common(1)), ""),
                **{name: seen[rank.rank][name] for name in ("looks", "asleep", "dumps", "waited")},
            }
            for rank in ranks
            if rank.rank in seen
        ]
        return {"ranks": of_ranks, "node": self._facts([rank.pid for rank in ranks])} if of_ranks else None

    def _facts(self, pids: list[int]) -> list[str]:
        if not self.sample_stacks:
            self._before = None
            return []
        counted = slow_node.count(pids)
        self._before = self._before or counted
        return slow_node.texts(self._before, counted)

    def _run(self) -> None:
        find_at = dump_at = time.monotonic()
        while True:
            time.sleep(SAMPLE_S * random.uniform(0.5, 1.5))  # noqa: S311
            # Whatever the ranks do to their files and processes must not end this thread.
            with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
                now = time.monotonic()
                if now >= find_at:
                    find_at = now + PERIOD_S
                    self._find()
                self._sample()
                if self.sample_stacks and now >= dump_at:
                    self._dump()
                    dump_at = time.monotonic() + DUMP_S * random.uniform(0.5, 1.5) - SAMPLE_S  # noqa: S311

    def _find(self) -> None:
        """Find the processes of the ranks, if one has ended, and from time to time."""
        self._age += 1
        there = self._ranks and all(process_table.start_time(pid) == began for pid, began in self._started.items())
        if there and self._age < _PERIODS:
            return
        node_plan, self._age = self._node_plan, 0
        found = stack_samples.of_job(self._job_dir, node_plan)
        found = [rank for rank in found if rank.rank < node_plan["world_size"]]
        with self._lock:
            self._ranks = found
        self._started = {rank.pid: process_table.start_time(rank.pid) for rank in found}
        tools = {rank.pid: stack_samples.tool(rank, node_plan.get("venvs", "")) for rank in found}
        self._tools = {pid: path for pid, path in tools.items() if path}

    def _sample(self) -> None:
        for rank in self._ranks:
            sleeps = asleep(rank.pid)
            if sleeps is not None:
                self._count(rank.rank, looks=1, asleep=int(sleeps))

    def _dump(self) -> None:
        """Read the stacks once, and note the place of each rank that does not wait."""
        for pid, (threads, _) in stack_samples.dump(self._ranks, self._tools).items():
            rank = next(each.rank for each in self._ranks if each.pid == pid)
            state, wchan, _ = stack_samples.process_state(pid)
            if threads and state:
                frames = threads.get("MainThread", [])
                waits = waiting(frames, state)
                self._count(rank, dumps=1, waited=int(waits))
                if not waits:
                    at = place({"frames": frames, "state": state, "wchan": wchan})[:MAX_AT]
                    with self._lock:
                        self._places.setdefault(rank, Counter())[at] += 1

    def _count(self, rank: int, **counts: int) -> None:
        with self._lock:
            self._seen.setdefault(rank, Counter()).update(counts)
