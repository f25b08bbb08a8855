#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Run a program of nccl-tests over the GPUs of this node alone: `inside.py PROGRAM OPTIONS...`.

A job has a process for each GPU, and the program takes all of them by itself (-g): the first process becomes it, the
others have nothing to do.
"""

import os
import sys

if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("inside.py: no program, expected that of nccl-tests and its options")
    if os.environ.get("LOCAL_RANK", "0") == "0":
        # The command is the job's own.
        os.execv(sys.argv[1], [*sys.argv[1:], "-g", os.environ.get("LOCAL_WORLD_SIZE", "1")])  # noqa: S606
