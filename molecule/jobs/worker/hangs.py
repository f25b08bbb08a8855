#!/usr/bin/env python3
"""Ranks that reduce a number in each step; one of them does not come to a step, or leaves, as a test asks for."""

import argparse
import fcntl
import functools
import os
import signal
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--framework", choices=["torch", "mindspore", "oneflow"], default="torch")
parser.add_argument("--rank", type=int, default=-1, help="the rank that does not come to that step")
parser.add_argument("--at", type=int, default=5, help="the step")
parser.add_argument("--how", choices=["sleep", "stop", "lock", "fifo", "leave", "memory"], default="sleep")
parser.add_argument("--pause", type=float, default=0.0, help="seconds of an evaluation after that step, on all ranks")
parser.add_argument("--steps", type=int, default=20)
options, _ = parser.parse_known_args()  # some launchers add --local_rank


def load_batch():
    """Never return."""
    if options.how == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif options.how == "lock":
        for _ in range(2):
            fcntl.flock(os.open(__file__, os.O_RDONLY), fcntl.LOCK_EX)
    elif options.how == "fifo":
        pipe = Path(os.environ["TRAINYARD_JOB_DIR"], "batches")
        os.mkfifo(pipe)
        pipe.read_bytes()
    elif options.how == "leave":
        os._exit(0)
    elif options.how == "memory":
        batches = []
        while True:
            batches.append(b"x" * (16 << 20))
    time.sleep(3600)


def with_torch():
    """Return the number of this rank, and a step that all take together."""
    import torch
    import torch.distributed as dist

    # mpirun says the rank in a variable of its own.
    os.environ.setdefault("RANK", os.environ.get("OMPI_COMM_WORLD_RANK", "0"))
    dist.init_process_group("gloo")
    return dist.get_rank(), functools.partial(dist.all_reduce, torch.ones(1))


def with_mindspore():
    """Return the same: a step of data parallel training, of which the gradients are reduced."""
    import mindspore
    import numpy as np
    from mindspore import Tensor, nn
    from mindspore.communication import get_rank, init

    mindspore.set_context(mode=mindspore.GRAPH_MODE, device_target="CPU")
    init()
    if os.environ.get("MS_ROLE") == "MS_SCHED":
        raise SystemExit(0)
    mindspore.set_seed(1)
    mindspore.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
    network = nn.Dense(16, 4)
    cell = nn.TrainOneStepCell(nn.WithLossCell(network, nn.MSELoss()), nn.SGD(network.trainable_params(), 0.1))
    cell.set_train()
    pictures, answers = Tensor(np.ones((8, 16), np.float32)), Tensor(np.zeros((8, 4), np.float32))

    def step():
        return cell(pictures, answers).asnumpy()

    return get_rank(), step


def with_oneflow():
    """Return the same; OneFlow joins its cluster when it is imported."""
    import oneflow

    number = oneflow.ones(1)

    def step():
        oneflow.comm.all_reduce(number)
        return number.numpy()

    return oneflow.env.get_rank(), step


def train(rank, take_step):
    """Take the steps together."""
    for step in range(1, options.steps + 1):
        if step == options.at and rank == options.rank:
            load_batch()
        take_step()
        print(f"step {step}/{options.steps} loss {1 / step:.4f} at {time.time():.3f}", flush=True)
        time.sleep(0.1)
        if step == options.at and options.pause:
            print("evaluating", flush=True)
            time.sleep(options.pause)


train(*{"torch": with_torch, "mindspore": with_mindspore, "oneflow": with_oneflow}[options.framework]())
# The interpreter's own exit now and then aborts after distributed training under load.
os._exit(0)
