"""A training whose parameters depend on what all ranks gather in each step; it saves each step, and resumes the last.

It runs as `python -c` with training/mindspore/ as its folder.
"""

import hashlib
import os
import sys
import time
from pathlib import Path

STEPS, folder = int(sys.argv[1]), Path(sys.argv[2])
if os.environ.get("MS_ROLE"):
    import cluster

    rank, ranks = cluster.join()

    def gather(number):
        return [row[0] for row in cluster.gather([number], ranks)]
else:
    import torch.distributed

    torch.distributed.init_process_group("gloo")
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()

    def gather(number):
        found = [0] * ranks
        torch.distributed.all_gather_object(found, number)
        return found


folder.mkdir(exist_ok=True)
saved = {int(path.stem): int(path.read_text()) for path in folder.glob("*.txt")}
begin, parameters = max(saved.items(), default=(0, 1))
print(f"rank {rank} of {ranks} at {os.environ['MASTER_ADDR']}, resumed from step {begin}", flush=True)
for step in range(begin + 1, STEPS + 1):
    parameters = (31 * parameters + sum(gather(step * (rank + 1)))) % 65521
    time.sleep(0.1)
    if rank == 0:
        new = folder / "new"
        new.write_text(str(parameters))
        new.rename(folder / f"{step}.txt")
        print(f"step {step}/{STEPS} loss {1 / step:.4f}", flush=True)
print(f"rank {rank} parameters sha256 {hashlib.sha256(str(parameters).encode()).hexdigest()}", flush=True)
os._exit(0)
