#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How late the lines of ranks come where launch.yml follows all of them, in seconds; aim: at most 3.

LAB=NAME benchmarks/live_lines.py --nodes 3 --seconds 30      three ranks, one on each of the lab's first nodes

Each rank prints the time; a line is stamped when launch.yml prints it. All hosts of the lab share one clock. With
LAB_INVENTORY=FOLDER in place of LAB, the hosts of another inventory.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import time
import uuid

from starting import INVENTORY, PROJECT, BenchmarkError, job

_TOLD = re.compile(r"\[\d+\] told at ([\d.]+)$")


def followed(nodes: int, seconds: float) -> list[float]:
    """Run a job and follow it; returns by how many seconds each line was late."""
    program = ["python3", "tiny_clock.py", f"--seconds={seconds}"]
    name = f"lines-{uuid.uuid4().hex[:8]}"
    arguments = job("direct", [], nodes, "benchmarks", job_name=name, job_venv="", job_packages=[], job_command=program)
    argv = ["ansible-playbook", "launch.yml", "-i", str(INVENTORY), *arguments, "-e", "follow=all"]
    late, said = [], []
    with subprocess.Popen(argv, cwd=PROJECT, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        for line in process.stdout or ():
            told = _TOLD.match(line.rstrip())
            if told:
                late.append(time.time() - float(told[1]))
            said.append(line)
    if process.returncode or len(late) < nodes * seconds:
        raise BenchmarkError(f"{len(late)} lines, status {process.returncode}:\n{''.join(said)[-3000:]}")
    return late


def main() -> None:
    """Print how late lines were."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=30)
    given = parser.parse_args()
    late = followed(given.nodes, given.seconds)
    figures = " / ".join(f"{each:.1f}" for each in (min(late), statistics.median(late), max(late)))
    print(f"| nodes | lines | s late: min / median / max |\n|---|---|---|\n| {given.nodes} | {len(late)} | {figures} |")


if __name__ == "__main__":
    main()
