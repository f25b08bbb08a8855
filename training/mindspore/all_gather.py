#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gather the ranks' numbers on every rank, with the collective that training uses, and judge what came.

Each rank prints `all-gather rank 1 of 4 on n2: 0 1 2 3 right`, or at its end `wrong, expected 0 1 2 3`, and its cores.
Runs under the launchers mindspore, msrun and mpirun; the scheduler runs it as well and gathers nothing.

Exit status: 0 right, 1 wrong or failed.
"""

from __future__ import annotations

import os
import socket
import sys

import cluster


def gather(rank: int, ranks: int) -> list[int]:
    """Return what the all-gather of every rank's number gave on this rank."""
    return [number for numbers in cluster.gather([rank], ranks) for number in numbers]


def main() -> int:
    """Gather, judge, and return the exit status."""
    rank, ranks = cluster.join()
    gathered, expected = gather(rank, ranks), list(range(ranks))
    outcome = "right" if gathered == expected else f"wrong, expected {' '.join(map(str, expected))}"
    line = f"all-gather rank {rank} of {ranks} on {socket.gethostname()}: {' '.join(map(str, gathered))} {outcome}"
    cores = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    sys.stdout.write(f"{line}\ncores of rank {rank}: {cores}\n")
    sys.stdout.flush()
    # The first rank that fails ends all of them: each must have said its line before. CPUs have no barrier.
    cluster.gather([rank], ranks)
    return 0 if gathered == expected else 1


if __name__ == "__main__":
    sys.exit(main())
