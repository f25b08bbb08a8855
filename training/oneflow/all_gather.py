#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gather the ranks' numbers on every rank, with the collective that training uses, and judge what came.

Each rank prints `all-gather rank 1 of 4 on n2: 0 1 2 3 right`, or at its end `wrong, expected 0 1 2 3`, and its cores.
Runs under the launchers oneflow, in both styles, and direct. Exit status: 0 right, 1 wrong or failed.
"""

from __future__ import annotations

import os
import socket
import sys
from typing import Any

import numpy as np
from place import place


def gather(flow: Any, rank: int, ranks: int) -> list[int]:
    """Return what every rank put at its place of a sum over all ranks; -1 where nobody put anything."""
    on_gpu = bool(os.environ.get("CUDA_VISIBLE_DEVICES"))
    own = np.zeros(ranks, np.float32)
    own[rank] = rank + 1
    total = flow.tensor(own, device=flow.device("cuda", flow.env.get_local_rank()) if on_gpu else flow.device("cpu"))
    if ranks > 1:
        flow.comm.all_reduce(total)  # in place
    return [int(number) - 1 for number in total.numpy()]


def main() -> int:
    """Gather, judge, and return the exit status."""
    # OneFlow joins its cluster when it is imported.
    os.environ.update(place(os.environ))
    import oneflow as flow

    rank, ranks = flow.env.get_rank(), flow.env.get_world_size()
    gathered, expected = gather(flow, rank, ranks), list(range(ranks))
    outcome = "right" if gathered == expected else f"wrong, expected {' '.join(map(str, expected))}"
    line = f"all-gather rank {rank} of {ranks} on {socket.gethostname()}: {' '.join(map(str, gathered))} {outcome}"
    cores = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    sys.stdout.write(f"{line}\ncores of rank {rank}: {cores}\n")
    sys.stdout.flush()
    # The first rank that fails ends all of them: each must have said its line before.
    gather(flow, rank, ranks)
    if gathered == expected:
        return 0
    # OneFlow's own exit would wait for the other ranks, which wait for this one.
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
