#!/usr/bin/env python3
"""A rank without a framework: prints progress as a training script does, and fails in the ways that a test asks for.

Every rank has a child in a session of its own, as data loaders may be: it must end with the job, too.
"""

import argparse
import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=10_000)
parser.add_argument("--raise-on", type=int, help="the rank that raises and exits with 7")
parser.add_argument("--once", action="store_true", help="raise in the first attempt only")
parser.add_argument("--resume", action="store_true", help="go on after the last step of the attempt before")
parser.add_argument("--restarts", type=int, default=0, help="be done only after so many, each attempt with its share")
parser.add_argument("--gate", action="store_true", help="go past the middle only when the file go is there")
parser.add_argument("--stubborn", action="store_true", help="do not end when asked to")
options = parser.parse_args()
if options.stubborn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
attempt = int(os.environ.get("TRAINYARD_ATTEMPT", "0"))
# As a training script goes on from its last checkpoint.
done = Path(os.environ["TRAINYARD_JOB_DIR"], f"done_{rank}")
begin = int(done.read_text()) + 1 if options.resume and done.exists() else 1


def batch(step):
    """Do one step's work, or raise."""
    if rank == options.raise_on and step == 5 and (attempt == 0 or not options.once):
        raise ValueError(f"no picture for step {step}")
    if options.once and attempt == 0 and step == 5:
        signal.pause()  # as in a collective that the failed rank never joins
    if step > options.steps * (attempt + 1) // (options.restarts + 1):
        signal.pause()  # however late the fault comes that a test has in store
    while options.gate and 2 * step > options.steps and not Path("go").exists():
        time.sleep(0.1)
    time.sleep(0.1)


child = subprocess.Popen(["sleep", "3600"], start_new_session=True)
secret = os.environ.get("WORKER_SECRET", "")
print(f"rank {rank} of {ranks} pid {os.getpid()} head {os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}")
print(f"secret sha256 {hashlib.sha256(secret.encode()).hexdigest()}", flush=True)
try:
    for step in range(begin, options.steps + 1):
        batch(step)
        # Whole or not at all: a node may lose its power right here.
        done.with_suffix(".new").write_text(str(step))
        done.with_suffix(".new").replace(done)
        print(f"step {step}/{options.steps} loss {1 / step:.4f} rate 10.0", flush=True)
except ValueError as error:
    import traceback

    traceback.print_exception(error)
    sys.stderr.flush()
    child.kill()
    sys.exit(7)
child.kill()
