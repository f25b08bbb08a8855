#!/usr/bin/env python3
"""Processes of a MindSpore cluster that do not do their part, as a test asks.

Without options a worker fails before it would join, and all others wait for ever. With --hang that worker waits, too,
and all others really join and wait for it. With --wait nobody fails, and with --stay workers end well at once while the
scheduler stays. Only those that join need the framework.
"""

import argparse
import os
import signal
import sys

parser = argparse.ArgumentParser()
parser.add_argument("--rank", default="1", help="the rank that never joins")
parser.add_argument("--hang", action="store_true")
parser.add_argument("--wait", action="store_true")
parser.add_argument("--stay", action="store_true")
options = parser.parse_args()
scheduler = os.environ["MS_ROLE"] == "MS_SCHED"
if options.stay:
    print("the scheduler stays" if scheduler else "a worker ends well", flush=True)
    if scheduler:
        signal.pause()
    sys.exit(0)
if os.environ["MS_NODE_ID"] == options.rank and not options.wait:
    print(f"rank {options.rank} does not join", flush=True)
    if options.hang:
        signal.pause()
    sys.exit("no device answers")
if not options.hang:
    signal.pause()

import mindspore  # noqa: E402 - only for those that join
from mindspore.communication import init  # noqa: E402

mindspore.set_context(mode=mindspore.GRAPH_MODE, device_target="CPU")
init()
