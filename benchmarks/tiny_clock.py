#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rank that prints the time about twice a second, for --seconds; live_lines.py says how late its lines come."""

from __future__ import annotations

import argparse
import random
import time

parser = argparse.ArgumentParser(description="Print the time, in seconds since the epoch, again and again.")
parser.add_argument("--seconds", type=float, default=30)
options = parser.parse_args()
until = time.time() + options.seconds
while time.time() < until:
    print(f"told at {time.time():.3f}", flush=True)
    # At no fixed distance from the visits.
    time.sleep(random.uniform(0.25, 0.75))  # noqa: S311 - nothing secret
