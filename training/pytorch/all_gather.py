#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gather the ranks' numbers on every rank, with the collective that training uses, and judge what came.

Each rank prints `all-gather rank 1 of 4 on n2: 0 1 2 3 right`, or at its end `wrong, expected 0 1 2 3`, and its cores.
Reads RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT. Uses NCCL where there are CUDA devices, else gloo.

Exit status: 0 right, 1 wrong or failed.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
from datetime import timedelta

import torch
import torch.distributed as dist


def gather(rank: int, ranks: int, device: torch.device) -> list[int]:
    """Return what the all-gather of every rank's number gave on this rank."""
    received = [torch.full((1,), -1, dtype=torch.int64, device=device) for _ in range(ranks)]
    dist.all_gather(received, torch.tensor([rank], dtype=torch.int64, device=device))
    return [int(number) for number in received]


def main() -> int:
    """Gather, judge, and return the exit status."""
    parser = argparse.ArgumentParser(description="All-gather of the ranks' numbers, judged on every rank.")
    parser.add_argument("--timeout", type=int, default=120, help="seconds to wait for the other ranks")
    timeout = timedelta(seconds=parser.parse_args().timeout)
    device = torch.device("cpu")
    if torch.cuda.is_available():
        # A launcher that shows each rank only its own device numbers it 0 for all of them.
        alone = torch.cuda.device_count() == 1
        device = torch.device("cuda", 0 if alone else int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=timeout)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    gathered, expected = gather(rank, ranks, device), list(range(ranks))
    outcome = "right" if gathered == expected else f"wrong, expected {' '.join(map(str, expected))}"
    line = f"all-gather rank {rank} of {ranks} on {socket.gethostname()}: {' '.join(map(str, gathered))} {outcome}"
    cores = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    sys.stdout.write(f"{line}\ncores of rank {rank}: {cores}\n")
    sys.stdout.flush()
    # The first rank that fails ends all of them: each must have said its line before.
    dist.barrier()
    dist.destroy_process_group()
    return 0 if gathered == expected else 1


if __name__ == "__main__":
    status = main()
    # The interpreter's own exit may abort while threads of the process group end.
    os._exit(status)
