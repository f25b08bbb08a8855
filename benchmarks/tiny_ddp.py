#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The smallest DistributedDataParallel training: what a launcher costs shows, and little else does.

Rank 0 prints when its first and last steps were done, in seconds since the epoch; all hosts of the lab share one clock.
"""

import argparse
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

# mpirun says the rank in a variable of its own.
os.environ.setdefault("RANK", os.environ.get("OMPI_COMM_WORLD_RANK", "0"))

parser = argparse.ArgumentParser(description="A tiny distributed training.")
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--width", type=int, default=16, help="inputs of the layer; it has a quarter of that as outputs")
parser.add_argument("--pause", type=float, default=0.0, help="seconds between two steps")
options, _ = parser.parse_known_args()  # some launchers add --local_rank

torch.manual_seed(1)
dist.init_process_group("gloo")
network = DistributedDataParallel(torch.nn.Linear(options.width, options.width // 4))
optimizer = torch.optim.SGD(network.parameters(), 0.1)
for step in range(1, options.steps + 1):
    optimizer.zero_grad()
    loss = network(torch.ones(8, options.width)).square().mean()
    loss.backward()
    optimizer.step()
    if dist.get_rank() == 0 and step in (1, options.steps):
        print(f"{'first' if step == 1 else 'last'} step at {time.time():.3f}", flush=True)
    time.sleep(options.pause)
if dist.get_rank() == 0:
    print(f"step {options.steps}/{options.steps} loss {loss.item():.4f}", flush=True)
dist.destroy_process_group()
# The interpreter's own exit now and then aborts after distributed training under load.
sys.stdout.flush()
os._exit(0)
