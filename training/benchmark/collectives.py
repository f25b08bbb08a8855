#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure collectives over all ranks, or over those of each node, and check every rank's result.

Prints what nccl-tests print, by rank 0 (of each node): see table.py. Options have nccl-tests' names. Reads RANK,
WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT; for backend `mpi`, run it under mpirun.

Exit status: 0 done, 1 failed, 2 wrong input, 7 this rank got wrong results (as nccl-tests).
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import table
import values

WRONG = 7
# Default options. CPUs are much slower: 1 GiB among them would take minutes.
ON_DEVICES = {"minbytes": "1K", "maxbytes": "1G", "stepfactor": 2, "iters": 20, "warmup_iters": 5}
ON_CPUS = {"minbytes": "1K", "maxbytes": "64M", "stepfactor": 4, "iters": 5, "warmup_iters": 1}


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Measure collectives and check every rank's result.")
    parser.add_argument("--collective", choices=values.COLLECTIVES, default="all_reduce")
    parser.add_argument("--backend", choices=("auto", "gloo", "nccl", "hccl", "mpi"), default="auto")
    parser.add_argument("--within", choices=("cluster", "node"), default="cluster", help="which ranks work together")
    # Their defaults depend on the backend, which `auto` chooses only where the devices are.
    parser.add_argument("-b", "--minbytes", type=table.size)
    parser.add_argument("-e", "--maxbytes", type=table.size)
    parser.add_argument("-f", "--stepfactor", type=int)
    parser.add_argument("-n", "--iters", type=int)
    parser.add_argument("-w", "--warmup_iters", type=int)
    parser.add_argument("-c", "--check", type=int, default=1, help="0: do not check results")
    parser.add_argument("-T", "--timeout", type=int, default=120, help="seconds to wait for other ranks")
    given = parser.parse_args()
    if given.iters is not None and given.iters < 1:
        parser.error(f"-n {given.iters}: expected at least 1 iteration")
    if given.minbytes is not None and given.minbytes < values.ELEMENT_BYTES:
        parser.error(f"-b {given.minbytes}: expected at least 4 bytes")
    return given


def complete(given: argparse.Namespace, backend: str) -> None:
    """Choose what was not given, as it suits the backend."""
    for name, value in (ON_CPUS if backend in ("gloo", "mpi") else ON_DEVICES).items():
        if getattr(given, name) is None:
            setattr(given, name, table.size(value) if isinstance(value, str) else value)


def join(given: argparse.Namespace) -> Any:
    """Join the other ranks, and return the group."""
    if given.backend == "mpi":
        import over_mpi

        return over_mpi.Group()
    import over_torch
    from torch.distributed import FileStore, rendezvous

    environment, local_rank = os.environ, int(os.environ.get("LOCAL_RANK", "0"))
    backend = over_torch.choose(given.backend)
    if given.within == "node":
        ranks = int(environment.get("LOCAL_WORLD_SIZE", "1"))
        # The working folder may be one that nodes share.
        store = FileStore(str(Path(f"ranks-{socket.gethostname()}").resolve()), ranks)
        return over_torch.Group(backend, store, local_rank, ranks, local_rank, given.timeout)
    for name, alone in (("RANK", "0"), ("WORLD_SIZE", "1"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "0")):
        environment.setdefault(name, alone)
    # It also knows of the store that torchrun keeps.
    store, rank, ranks = next(rendezvous("env://", timeout=timedelta(seconds=given.timeout)))
    return over_torch.Group(backend, store, rank, ranks, local_rank, given.timeout)


def measure(group: Any, exchange: Any, in_place: bool, given: argparse.Namespace) -> tuple[float, int | None]:
    """Return the seconds of one operation, and the wrong elements on this rank."""
    exchange.fill(in_place)
    for _ in range(given.warmup_iters):
        exchange.run(in_place)
    group.synchronize()
    group.barrier()
    began = time.perf_counter()
    for _ in range(given.iters):
        exchange.run(in_place)
    group.synchronize()
    seconds = (time.perf_counter() - began) / given.iters
    if not given.check:
        return seconds, None
    # Sums of sums are of no use here.
    exchange.fill(in_place)
    group.barrier()
    exchange.run(in_place)
    group.synchronize()
    return seconds, exchange.wrong(in_place)


def say(text: str) -> None:
    """Print at once: the log is read while this runs."""
    sys.stdout.write(text)
    sys.stdout.flush()


def main() -> int:
    """Measure every size, and return the exit status."""
    given = arguments()
    group = join(given)
    complete(given, group.backend)
    host = socket.gethostname().split(".")[0]
    places = [table.Place(*place) for place in group.collect([group.rank, os.getpid(), host, *group.device_name()])]
    if places:
        settings = (
            f"minBytes {given.minbytes} maxBytes {given.maxbytes} step: {given.stepfactor}(factor) "
            f"warmup iters: {given.warmup_iters} iters: {given.iters} validation: {given.check}"
        )
        say(table.header(f"{given.collective} over {group.backend}", settings, places))
    own_wrong, speeds, wrong_of = 0, [], [0] * group.ranks
    for size in table.sizes(given.minbytes, given.maxbytes, given.stepfactor):
        count = values.share(given.collective, size, group.ranks)
        if not count:
            continue
        exchange = group.exchange(given.collective, count)
        found = [measure(group, exchange, in_place, given) for in_place in values.ways(given.collective)]
        own_wrong += sum(wrong or 0 for _, wrong in found)
        everyone = group.collect(found)
        if not everyone:
            continue
        ways = []
        for of_ranks in zip(*everyone):
            seconds = statistics.mean(seconds for seconds, _ in of_ranks)
            wrongs = [wrong or 0 for _, wrong in of_ranks]
            wrong_of = [sum(both) for both in zip(wrong_of, wrongs)]
            ways.append(table.Outcome(seconds, sum(wrongs) if given.check else None))
            speeds.append(table.bandwidth(given.collective, exchange.nbytes, group.ranks, seconds)[1])
        say(table.row(given.collective, exchange.nbytes, count, group.ranks, ways))
    for place in places:
        if wrong_of[place.rank]:
            say(f"# Wrong on rank {place.rank} on {place.host}: {wrong_of[place.rank]} elements\n")
    if places:
        say(table.footer(sum(wrong_of), speeds))
    elif own_wrong:
        say(f"# Wrong on rank {group.rank} on {host}: {own_wrong} elements\n")
    # The first rank that fails ends all of them: each must have said its lines before.
    group.leave()
    return WRONG if own_wrong else 0


if __name__ == "__main__":
    status = main()
    # The interpreter's own exit may abort while threads of the process group end.
    os._exit(status)
