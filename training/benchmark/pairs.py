#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure pairs of nodes, round after round: each process meets its partner of a round alone.

The schedule is a JSON file, {"hosts": [names in the order of node ranks], "rounds": [[[a, b], ...], ...]}. A round's
pairs are disjoint and run side by side; nobody waits for other pairs. For each of its pairs a process prints, if it
is the first of the two or if there was no measurement,

    pair {"hosts": ["n1", "n2"], "round": 0, "rail": 0, "busbw": 11.9, "wrong": 0, "error": "", ...}

`rail` is the local rank of the two: with a process for each device, every device has its own pair. busbw in GB/s of
10^9 bytes, of an all_reduce over the two. A partner that does not come costs --timeout, not the run; so does one that
hangs in the middle, as every pair is a process of its own. Exit status: 0 also then, 2 wrong input.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import statistics
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import over_torch
import table
import values
from own_process import in_own_process
from schedule import Pair, checked, own_pairs
from torch.distributed import TCPStore

# The size grows until a few operations take so long: a slow pair is measured with less.
LONG_ENOUGH_S = 0.2
MEASURE_S = 1.0
LEAST_BYTES = 1 << 20
# The latency is that of 8 bytes: the median of some means, so that one disturbance does not count.
SMALL_ELEMENTS, SMALL_ITERATIONS, SMALL_ROUNDS = 2, 10, 5
MOST_ITERATIONS = 50


def own_address(head: str, port: int) -> str:
    """Return the address by which this node reaches the head, and others reach it. Nothing is sent."""
    family = socket.AF_INET6 if ":" in head else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((head, port))
        return str(probe.getsockname()[0])


class Measurement:
    """The process of one pair: meet, measure, and write a JSON object a line to the pipe `report`."""

    def __init__(self, pair: Pair, given: argparse.Namespace, head: tuple[str, int], deadline: float) -> None:
        """`deadline` is by time.monotonic()."""
        self._pair, self._given, self._head, self._deadline = pair, given, head, deadline

    def _left(self) -> timedelta:
        return timedelta(seconds=max(0.5, self._deadline - time.monotonic()))

    def meet(self) -> Any:
        """Return a store for the two alone. Raises RuntimeError where the partner does not come."""
        pair = self._pair
        board = TCPStore(*self._head, None, False, self._left())
        if pair.first:
            store = TCPStore("0.0.0.0", 0, None, True, self._left(), wait_for_workers=False)  # noqa: S104
            board.set(pair.key, json.dumps([own_address(*self._head), store.port]))
            store.wait(["here"], self._left())
            return store
        board.wait([pair.key], self._left())
        address, port = json.loads(board.get(pair.key))
        store = TCPStore(address, port, None, False, self._left())
        store.set("here", "1")
        return store

    def run(self, report: Any) -> None:
        """Meet the partner, and measure."""
        pair, given = self._pair, self._given
        store = self.meet()
        report({"met": True})
        backend = over_torch.choose(given.backend)
        group = over_torch.Group(backend, store, 0 if pair.first else 1, 2, pair.rail, self._left().total_seconds())
        small = group.exchange("all_reduce", SMALL_ELEMENTS)
        small_s = statistics.median(self._time(group, small, SMALL_ITERATIONS) for _ in range(SMALL_ROUNDS))
        size, seconds, exchange = LEAST_BYTES, 0.0, None
        while True:
            exchange = group.exchange("all_reduce", values.share("all_reduce", min(size, given.maxbytes), 2))
            seconds = self._time(group, exchange, 3)
            if not group.decide(3 * seconds < LONG_ENOUGH_S and size < given.maxbytes):
                break
            size *= 4
        iterations = group.decide(max(3, min(MOST_ITERATIONS, int(MEASURE_S / max(seconds, 1e-9)))))
        seconds = self._time(group, exchange, iterations)
        exchange.fill(True)
        group.barrier()
        exchange.run(True)
        group.synchronize()
        found = group.collect([seconds, small_s, exchange.wrong(True)])
        if found:
            mean, small_s = (statistics.mean(each) for each in list(zip(*found))[:2])
            report(
                {
                    "busbw": round(table.bandwidth("all_reduce", exchange.nbytes, 2, mean)[1], 6),
                    "wrong": sum(wrong for *_, wrong in found),
                    "wrong_on": [host for host, (*_, wrong) in zip(pair.hosts, found) if wrong],
                    "bytes": exchange.nbytes,
                    "seconds": round(mean, 6),
                    "latency_us": round(small_s * 1e6, 1),
                    "iterations": iterations,
                    "backend": backend,
                    "device": group.device_name()[2],
                }
            )
        else:
            report({"done": True})
        group.leave()

    @staticmethod
    def _time(group: Any, exchange: Any, iterations: int) -> float:
        exchange.fill(True)
        exchange.run(True)
        group.synchronize()
        group.barrier()
        began = time.perf_counter()
        for _ in range(iterations):
            exchange.run(True)
        group.synchronize()
        return (time.perf_counter() - began) / iterations


def serve(head: tuple[str, int], ranks: int, seconds: float) -> int:
    """Keep the store where all pairs find each other, in a process of its own, until all are done; return its id."""
    child = os.fork()
    if child == 0:
        signal.alarm(int(seconds) + 5)
        store = TCPStore("0.0.0.0", head[1], None, True, timedelta(seconds=seconds), wait_for_workers=False)  # noqa: S104
        with contextlib.suppress(RuntimeError):
            store.wait([f"end/{rank}" for rank in range(ranks)], timedelta(seconds=seconds))
        os._exit(0)
    return child


def main() -> int:
    """Measure all pairs of this process, and return the exit status."""
    parser = argparse.ArgumentParser(description="Measure pairs of nodes.")
    parser.add_argument("--schedule", type=Path, default=Path("schedule.json"))
    parser.add_argument("--backend", choices=("auto", "gloo", "nccl", "hccl"), default="auto")
    parser.add_argument("-e", "--maxbytes", type=table.size, default=table.size("64M"))
    parser.add_argument("-T", "--timeout", type=int, default=60, help="seconds for each round")
    given = parser.parse_args()
    environment = {name: os.environ[name] for name in ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE")}
    head, rank = (environment["MASTER_ADDR"], int(environment["MASTER_PORT"])), int(environment["RANK"])
    try:
        schedule = json.loads(given.schedule.read_text())
        pairs = own_pairs(schedule, int(os.environ["GROUP_RANK"]), int(os.environ.get("LOCAL_RANK", "0")))
    except (OSError, ValueError, KeyError) as error:
        sys.stderr.write(f"{given.schedule} is no schedule for this job: {error}\n")
        return 2
    began = time.monotonic()
    whole = given.timeout * (len(schedule["rounds"]) + 1)
    server = serve(head, int(environment["WORLD_SIZE"]), whole) if rank == 0 else 0
    for pair in pairs:
        # By the clock of the run: who was kept waiting in a round still has the whole of the next one.
        deadline = began + given.timeout * (pair.round + 1)
        line = checked(pair, in_own_process(Measurement(pair, given, head, deadline).run, deadline), given.timeout)
        if line:
            sys.stdout.write(f"pair {json.dumps(line)}\n")
            sys.stdout.flush()
    with contextlib.suppress(RuntimeError):
        TCPStore(*head, None, False, timedelta(seconds=given.timeout)).set(f"end/{rank}", "1")
    if server:
        os.waitpid(server, 0)
    return 0


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)
