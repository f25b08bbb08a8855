#!/usr/bin/env python3
"""Processes of a MindSpore cluster that do not do their part, as a test asks.

Without options a worker fails before it joins; with --hang it waits for ever instead; all others join and wait for it.
With --stay nobody joins: workers end well at once, and the scheduler stays for ever.
"""

import argparse
import os
import signal
import sys

parser = argparse.ArgumentParser()
parser.add_argument("--rank", default="1", help="the rank that never joins")
parser.add_argument("--hang", action="store_true")
parser.add_argument("--stay", action="store_true")
options = parser.parse_args()
scheduler = os.environ["MS_ROLE"] == "MS_SCHED"
if options.stay:
    print("the scheduler stays" if scheduler else "a worker ends well", flush=True)
    if scheduler:
        signal.pause()
    sys.exit(0)
if os.environ["MS_NODE_ID"] == options.rank:
    print(f"rank {options.rank} does not join", flush=True)
    if options.hang:
        signal.pause()
    sys.exit("no device answers")

import mindspore  # noqa: E402 - not needed by those that never join
from mindspore.communication import init  # noqa: E402

mindspore.set_context(mode=mindspore.GRAPH_MODE, device_target="CPU")
init()
