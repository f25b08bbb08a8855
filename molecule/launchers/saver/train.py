#!/usr/bin/env python3
"""A training that saves when it is asked to end: rank 0 takes a while for that, and needs its data loader's workers.

The other ranks end by the signal at once, as most programs do.
"""

import os
import signal
import sys
import time
from pathlib import Path

SECONDS = float(sys.argv[1])
SIGNAL = signal.Signals[sys.argv[2]]


def numbers():
    while True:
        yield 1


def loader():
    """Return an endless source of batches that two worker processes fill."""
    try:
        from torch.utils.data import DataLoader, IterableDataset
    except ImportError:
        from multiprocessing import Pool

        return Pool(2).imap(abs, numbers())

    class Numbers(IterableDataset):
        def __iter__(self):
            return numbers()

    return iter(DataLoader(Numbers(), num_workers=2))


if os.environ.get("MS_ROLE") == "MS_SCHED":
    signal.pause()
rank = int(os.environ.get("RANK") or os.environ["MS_NODE_ID"])
folder = Path(os.environ["TRAINYARD_JOB_DIR"], "saved")
asked = []
batches = loader()
if rank == 0:
    signal.signal(SIGNAL, lambda number, _: asked.append(number))
    folder.mkdir(exist_ok=True)
done = [int(path.stem.removeprefix("step_")) for path in folder.glob("step_*.npz")] if rank == 0 else []
begin = max(done, default=0) + 1
print(f"rank {rank} pid {os.getpid()}", *([f"resumed from step {begin - 1}"] if done else []), flush=True)
for step in range(begin, 100_000):
    next(batches)
    time.sleep(0.1)
    if rank == 0:
        print(f"step {step}/100000 loss {1 / step:.4f}", flush=True)
    if asked:
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            # Without its workers this fails.
            next(batches)
            time.sleep(0.1)
        new = folder / f"step_{step:06}.new"
        new.write_text("parameters\n")
        new.rename(new.with_suffix(".npz"))
        print(f"saved step {step} after {len(asked)} signal", flush=True)
        os._exit(0)
