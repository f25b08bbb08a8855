# SPDX-License-Identifier: Apache-2.0
"""Prove a PyTorch installation: two processes import it and sum a tensor with gloo.

Runs from standard input, so the ranks are forked, not started from a file; nothing that keeps threads is imported
before. Prints what was found as one JSON object.
"""

import json
import os
import sys
import tempfile
from datetime import timedelta
from pathlib import Path

RANKS = 2
# By default gloo asks for the address of the host's name, which need not resolve yet.
os.environ["GLOO_SOCKET_IFNAME"] = "lo"


def torchvision_of(torch):  # type: ignore[no-untyped-def]
    """Return torchvision's version; one that was built for another torch has none of its compiled operators."""
    import torchvision

    boxes = torch.tensor([[0.0, 0.0, 2.0, 2.0], [0.0, 0.0, 2.0, 2.0], [5.0, 5.0, 6.0, 6.0]])
    kept = torchvision.ops.nms(boxes, torch.tensor([0.9, 0.8, 0.7]), 0.5).tolist()
    if kept != [0, 2]:
        sys.exit(f"torchvision's nms kept boxes {kept}, expected 0 and 2")
    return torchvision.__version__


def as_rank(rank: int, meeting_point: Path) -> None:
    """Take part in the sum as one rank."""
    import torch
    import torch.distributed as dist

    dist.init_process_group(
        "gloo", init_method=meeting_point.as_uri(), rank=rank, world_size=RANKS, timeout=timedelta(seconds=60)
    )
    values = torch.full((4,), float(rank + 1))
    dist.all_reduce(values)
    if values.tolist() != [3.0] * 4:
        sys.exit(f"the all-reduce of 1 and 2 gave {values.tolist()} on rank {rank}, expected 3")
    if rank == 0:
        found = {"torch": torch.__version__, "cuda": torch.version.cuda, "devices": torch.cuda.device_count()}
        if os.environ.get("TRAINYARD_TORCHVISION"):
            found["torchvision"] = torchvision_of(torch)
        print(json.dumps({**found, "all_reduce": values[0].item()}))
    sys.stdout.flush()
    dist.destroy_process_group()
    # The interpreter's own exit may abort while threads of the process group end.
    os._exit(0)


with tempfile.TemporaryDirectory() as folder:
    children = []
    for number in range(RANKS):
        child = os.fork()
        if child == 0:
            try:
                as_rank(number, Path(folder, "meeting-point"))
            finally:
                # Only on an error: the child must not go on as the parent.
                error = sys.exc_info()[1]
                print(f"rank {number}: {type(error).__name__}: {error}", flush=True)
                os._exit(1)
        children.append(child)
    failed = [number for number, child in enumerate(children) if os.waitpid(child, 0)[1] != 0]
if failed:
    sys.exit(f"rank(s) {', '.join(map(str, failed))} failed")
