#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Run train.py with a fault in its last rank, once: after a restart there is none.

    planted_fault.py {killed,hung} EPOCH [options of train.py]

`killed`: SIGKILL ends the rank, as the kernel does where memory runs out. `hung`: the rank waits forever, as for a file
server that does not answer.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

import train

FAULT, EPOCH = sys.argv[1], int(sys.argv[2])
del sys.argv[1:3]
if FAULT not in ("killed", "hung"):
    sys.exit(f"the fault is {FAULT}, expected killed or hung")
# The variable is set only where the job may restart.
FIRST_ATTEMPT = os.environ.get("TRAINYARD_ATTEMPT", "0") == "0"
# PR_SET_PTRACER with PR_SET_PTRACER_ANY: otherwise kernels with Yama, such as Ubuntu's, let nobody but root read the
# stacks of a rank. Without Yama it does nothing.
ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1))
healthy = train.Batches.of_epoch


def read_batch() -> None:
    """Never return."""
    while True:
        time.sleep(60)


def of_epoch(self: train.Batches, epoch: int) -> Iterator[Any]:
    """Yield the batches of the epoch; the last rank has its fault in the middle of the planted one."""
    planted = FIRST_ATTEMPT and epoch == EPOCH and self.place.rank == self.place.ranks - 1
    for number, batch in enumerate(healthy(self, epoch)):
        if planted and number == self.steps // 2:
            if FAULT == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            read_batch()
        yield batch


train.Batches.of_epoch = of_epoch
train.main()
