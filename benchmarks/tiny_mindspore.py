#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The smallest data parallel training with MindSpore, as tiny_ddp.py is with PyTorch.

Rank 0 prints when its first step was done, in seconds since the epoch; all hosts of the lab share one clock.
"""

from __future__ import annotations

import os
import sys
import time

import mindspore
import numpy as np
from mindspore import Tensor, nn
from mindspore.communication import get_rank, init

STEPS = 20

mindspore.set_context(mode=mindspore.GRAPH_MODE, device_target="CPU")
init()
if os.environ.get("MS_ROLE") == "MS_SCHED":
    sys.exit(0)
mindspore.set_seed(1)
mindspore.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
network = nn.Dense(16, 4)
train = nn.TrainOneStepCell(nn.WithLossCell(network, nn.MSELoss()), nn.SGD(network.trainable_params(), 0.1))
train.set_train()
pictures, answers = Tensor(np.ones((8, 16), np.float32)), Tensor(np.zeros((8, 4), np.float32))
for step in range(1, STEPS + 1):
    loss = train(pictures, answers).asnumpy()
    if get_rank() == 0 and step == 1:
        print(f"first step at {time.time():.3f}", flush=True)
if get_rank() == 0:
    print(f"step {STEPS}/{STEPS} loss {loss:.4f}", flush=True)
