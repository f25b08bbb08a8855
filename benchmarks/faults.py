# SPDX-License-Identifier: Apache-2.0
"""Break a running job, and see how long its other ranks live on: looked at from outside, by the host's processes."""

from __future__ import annotations

import os
import signal
import time

from running import RunningJob, alive, podman, wait_until
from starting import NODES, TINY, node_names


def fault(launcher: str, kind: str) -> dict[str, float]:
    """Break a running job, and return the seconds until the ranks of the other nodes and the command have ended."""
    broken, victim = NODES - 1, node_names(NODES)[-1]
    with RunningJob(launcher, [*TINY, "--steps=100000", "--pause=0.1"], NODES, "benchmarks") as job:
        job.trains("first step")
        ranks = job.ranks()
        others = [pid for rank, pid in ranks.items() if rank != broken]
        began = time.time()
        try:
            if kind == "kill":
                os.kill(ranks[broken], signal.SIGKILL)
            else:
                podman("pause", victim)
            ended = wait_until(lambda: not any(map(alive, others)), "end of the other ranks")
            job.wait(2)
            returned = time.time()
        finally:
            if kind == "pause":
                podman("unpause", victim)
        wait_until(lambda: not job.ranks(), "end of the ranks of the broken node")
    return {"other ranks gone": ended - began, "return": returned - began}
