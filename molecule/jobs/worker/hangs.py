#!/usr/bin/env python3
"""Ranks that reduce a number in each step by PyTorch; one of them does not come to step 5."""

import argparse
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--rank", type=int, default=-1, help="the rank that does not come to step 5")
parser.add_argument("--steps", type=int, default=20)
options = parser.parse_args()


def load_batch():
    """Never return: nobody writes into the pipe."""
    pipe = Path(os.environ["TRAINYARD_JOB_DIR"], "batches")
    os.mkfifo(pipe)
    pipe.read_bytes()


def train():
    """Take the steps together."""
    dist.init_process_group("gloo")
    for step in range(1, options.steps + 1):
        if step == 5 and dist.get_rank() == options.rank:
            load_batch()
        dist.all_reduce(torch.ones(1))
        print(f"step {step}/{options.steps} loss {1 / step:.4f}", flush=True)
        time.sleep(0.1)


train()
# The interpreter's own exit now and then aborts after distributed training under load.
os._exit(0)
