# SPDX-License-Identifier: Apache-2.0
"""Prove a OneFlow installation: two processes import it, join each other, and sum a tensor.

Prints what was found as one JSON object.
"""

import os
import socket
import subprocess
import sys
import tempfile

RANKS = 2
AS_RANK = """
import json, sys
import numpy
import oneflow as flow

rank = flow.env.get_rank()
values = flow.tensor(numpy.full(4, rank + 1.0, numpy.float32), device="cpu")
flow.comm.all_reduce(values)  # in place
total = values.numpy().tolist()
if total != [3.0] * 4:
    sys.exit(f"the all-reduce of 1 and 2 gave {total} on rank {rank}, expected 3")
if rank == 0:
    print(json.dumps({"oneflow": flow.__version__, "cuda": flow.cuda.is_available(), "all_reduce": total[0]}))
"""

with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]
with tempfile.TemporaryDirectory() as folder:
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(RANKS)}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", AS_RANK],
            env={**os.environ, **place, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=folder,
        )
        for rank in range(RANKS)
    ]
    # One that fails leaves the other waiting for it.
    said, failed = {}, []
    for pid, status in (os.wait() for _ in range(RANKS)):
        rank = next(number for number, process in enumerate(ranks) if process.pid == pid)
        said[rank] = ranks[rank].stdout.read()
        if status != 0:
            failed.append(rank)
            ranks[1 - rank].kill()
if failed:
    sys.exit(f"rank {failed[0]} failed: {said[failed[0]]}")
print(said[0].strip().splitlines()[-1])
