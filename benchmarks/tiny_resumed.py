#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small data parallel training that goes on from its last checkpoint, and says what each step took.

Rank 0 keeps the step of the last checkpoint in the job's folder, which stays from attempt to attempt. What it prints is
the truth that goodput is held against: times are seconds since the epoch, and all hosts of the lab share one clock.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

parser = argparse.ArgumentParser(description="A tiny distributed training that goes on after a failure.")
parser.add_argument("--framework", choices=["torch", "mindspore"], default="torch")
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--pause", type=float, default=0.1, help="seconds between two steps")
parser.add_argument("--every", type=int, default=10, help="steps between two checkpoints")
options, _ = parser.parse_known_args()  # some launchers add --local_rank
saved = Path(os.environ["TRAINYARD_JOB_DIR"], "saved-step")
# The rank, the step of the last checkpoint, and what takes a step and returns the loss.
Training = tuple[int, int, Callable[[], float]]


def kept(rank: int) -> int:
    """Return the step of the last checkpoint on rank 0, 0 on the others: their sum is what all begin at."""
    return int(saved.read_text()) if rank == 0 and saved.exists() else 0


def with_torch() -> Training:
    """Train by DistributedDataParallel over gloo."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    # mpirun says the rank in a variable of its own.
    os.environ.setdefault("RANK", os.environ.get("OMPI_COMM_WORLD_RANK", "0"))
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    begun = torch.tensor(kept(dist.get_rank()))
    dist.all_reduce(begun)
    network = DistributedDataParallel(torch.nn.Linear(16, 4))
    optimizer = torch.optim.SGD(network.parameters(), 0.1)

    def step() -> float:
        optimizer.zero_grad()
        loss = network(torch.ones(8, 16)).square().mean()
        loss.backward()
        optimizer.step()
        return float(loss)

    return dist.get_rank(), int(begun), step


def with_mindspore() -> Training:
    """Train data parallel on the CPU; MindSpore's scheduler ends here."""
    import mindspore
    import numpy as np
    from mindspore import Tensor, nn, ops
    from mindspore.communication import get_rank, init

    mindspore.set_context(mode=mindspore.GRAPH_MODE, device_target="CPU")
    init()
    if os.environ.get("MS_ROLE") == "MS_SCHED":
        sys.exit(0)
    mindspore.set_seed(1)
    mindspore.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)

    class Sum(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.sum = ops.AllReduce()

        def construct(self, value: Tensor) -> Tensor:
            return self.sum(value)

    begun = Sum()(Tensor(np.array([kept(get_rank())], np.float32))).asnumpy()
    network = nn.Dense(16, 4)
    train = nn.TrainOneStepCell(nn.WithLossCell(network, nn.MSELoss()), nn.SGD(network.trainable_params(), 0.1))
    train.set_train()
    pictures, answers = Tensor(np.ones((8, 16), np.float32)), Tensor(np.zeros((8, 4), np.float32))
    return get_rank(), int(begun[0]), lambda: float(train(pictures, answers).asnumpy())


rank, begun, take_step = with_torch() if options.framework == "torch" else with_mindspore()
for step in range(begun + 1, options.steps + 1):
    before = time.time()
    loss = take_step()
    time.sleep(options.pause)
    if rank == 0:
        now = time.time()
        print(f"step {step}/{options.steps} loss {loss:.4f} took {now - before:.4f} at {now:.3f}", flush=True)
        if step % options.every == 0:
            temporary = saved.with_suffix(".tmp")
            temporary.write_text(str(step))
            temporary.replace(saved)
# The interpreter's own exit now and then aborts after distributed training under load.
sys.stdout.flush()
os._exit(0)
