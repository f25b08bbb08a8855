#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small DistributedDataParallel training that goes on from its last checkpoint, and says what each step took.

Rank 0 keeps the step of the last checkpoint in the job's folder, which stays from attempt to attempt. What it prints is
the truth that goodput is held against: times are seconds since the epoch, and all hosts of the lab share one clock.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

# mpirun says the rank in a variable of its own.
os.environ.setdefault("RANK", os.environ.get("OMPI_COMM_WORLD_RANK", "0"))

parser = argparse.ArgumentParser(description="A tiny distributed training that goes on after a failure.")
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--pause", type=float, default=0.1, help="seconds between two steps")
parser.add_argument("--every", type=int, default=10, help="steps between two checkpoints")
options, _ = parser.parse_known_args()  # some launchers add --local_rank

torch.manual_seed(1)
dist.init_process_group("gloo")
saved = Path(os.environ["TRAINYARD_JOB_DIR"], "saved-step")
begun = torch.tensor(int(saved.read_text()) if dist.get_rank() == 0 and saved.exists() else 0)
dist.broadcast(begun, 0)
network = DistributedDataParallel(torch.nn.Linear(16, 4))
optimizer = torch.optim.SGD(network.parameters(), 0.1)
for step in range(int(begun) + 1, options.steps + 1):
    before = time.time()
    optimizer.zero_grad()
    loss = network(torch.ones(8, 16)).square().mean()
    loss.backward()
    optimizer.step()
    time.sleep(options.pause)
    if dist.get_rank() == 0:
        now = time.time()
        print(f"step {step}/{options.steps} loss {loss.item():.4f} took {now - before:.4f} at {now:.3f}", flush=True)
        if step % options.every == 0:
            temporary = saved.with_suffix(".tmp")
            temporary.write_text(str(step))
            temporary.replace(saved)
dist.destroy_process_group()
# The interpreter's own exit now and then aborts after distributed training under load.
sys.stdout.flush()
os._exit(0)
