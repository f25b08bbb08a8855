#!/usr/bin/env python3
"""A training with PyTorch on all ranks that survives, for drills; one defect may be planted.

    train.py FOLDER [DEFECT]

`handler`: no rank handles the signal. `rank`: rank 1 saves at the signal. `torn`: half a checkpoint is left at the
signal. `seed`: the order of the data begins anew at each start. `step`: the count of steps does. FOLDER may be on a
disk of each node: rank 0 saves and loads, and brings the state to the others.
"""

import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

folder, defect = Path(sys.argv[1]), (sys.argv[2:] or [""])[0]
asked = []
if defect != "handler":
    signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()

torch.manual_seed(7)
inputs = torch.randn(4096, 16)
targets = inputs @ torch.randn(16, 1) + 0.1 * torch.randn(4096, 1)
order = torch.randperm(4096)
model = nn.Linear(16, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.5)
message = [None]
if rank == 0:
    files = sorted(folder.glob("step_*.pt"))
    if files:
        message = [torch.load(files[-1], weights_only=True)]
        print(f"resumed from {files[-1].name}", flush=True)
dist.broadcast_object_list(message)
done = 0
if message[0]:
    done = message[0]["step"]
    model.load_state_dict(message[0]["model"])
    optimizer.load_state_dict(message[0]["optimizer"])
model = DistributedDataParallel(model)


def save(step, torn=False):
    new = folder / f".step_{step:06}.new"
    torch.save({"step": step, "model": model.module.state_dict(), "optimizer": optimizer.state_dict()}, new)
    if torn:
        new.write_bytes(new.read_bytes()[:-100])
    new.rename(folder / f"step_{step:06}.pt")


for made in range(done + 1, 100_000):
    begin = (made - done if defect == "seed" else made) * 64 % 4032
    batch = order[begin + rank : begin + 64 : size]
    loss = nn.functional.mse_loss(model(inputs[batch]), targets[batch])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    # All ranks go on or end together.
    state = torch.tensor([loss.item() / size, float(len(asked) > 0)])
    dist.all_reduce(state)
    time.sleep(0.3)
    if rank == 0:
        print(f"step {made - done if defect == 'step' else made} loss {state[0]:.6f}", flush=True)
        if made % 3 == 0:
            save(made)
    # Not beside a periodic save, which would hide that rank 0 saves nothing.
    if state[1] and (defect != "rank" or made % 3 == 2):
        if rank == (1 if defect == "rank" else 0):
            save(made, torn=defect == "torn")
        dist.barrier()
        os._exit(0)
