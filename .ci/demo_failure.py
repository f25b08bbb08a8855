#!/usr/bin/env python
# SPDX-License-Identifier: Apache-2.0
"""Show on this machine what becomes of three failing jobs: `make demo-failure` calls this.

Each job is jobs/planted-fault.yml. Exit status: 0 if the records of all three runs say what was announced, otherwise 1.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

PROJECT = Path(__file__).resolve().parents[1]
LAUNCH = ["ansible-playbook", "launch.yml", "-i", "inventories/localhost", "-e", "@jobs/planted-fault.yml"]
# The rank in which planted_fault.py has the fault.
RANK = 2


def lost_rank(summary: Mapping[str, Any]) -> str:
    """Return which rank the record of a failed job names as killed, "" if it names none or another one."""
    failure = summary["failure"] or {}
    if (summary["state"], failure.get("rank"), failure.get("signal")) != ("failed", RANK, signal.SIGKILL):
        return ""
    return f"rank {RANK} on {failure['host']} failed first, killed by SIGKILL"


def hang(summary: Mapping[str, Any]) -> str:
    """Return where the ranks of a job that hung were, "" without the stacks of all, or if another rank stands out."""
    failure, groups = summary["failure"] or {}, (summary["stacks"] or {}).get("groups", [])
    ranks = {rank for group in groups if group["frames"] for rank in group["ranks"]}
    if (failure.get("kind"), failure.get("rank"), len(ranks)) != ("hung", RANK, summary["world_size"]):
        return ""
    return f"no step for {failure['after_s']} s; {'; '.join(group['text'] for group in groups)}"


def restart(summary: Mapping[str, Any]) -> str:
    """Return where the job went on, "" if it was not the lost rank that restarted it, or if it began anew."""
    restarts = summary["restarts"]
    if summary["state"] != "succeeded" or len(restarts) != 1 or (restarts[0]["failure"] or {}).get("rank") != RANK:
        return ""
    (one,) = restarts
    if not one["resumed"] or (one["first_step"] or 1) == 1:
        return ""
    return f"{one['reason']} after step {one['step']:.0f}; {one['resumed']}, with step {one['first_step']:.0f}"


class Part(NamedTuple):
    """A job that has a fault: its name, what it shows, its further options, and what its record has to say."""

    name: str
    announced: str
    options: list[str]
    found: Callable[[Mapping[str, Any]], str]


PARTS = (
    Part("lost-rank", "A rank is killed while three train. The job ends, and names that rank.", [], lost_rank),
    Part(
        "hang",
        "A rank stops answering, and the others wait for it. After 5 s without a step it ends, showing where each is.",
        ["fault=hung", "job_hang_timeout=5"],
        hang,
    ),
    Part(
        "restart",
        "A rank is killed again. This job may restart once, and goes on from its checkpoint.",
        ["job_max_restarts=1"],
        restart,
    ),
)


def run(part: Part) -> Path | None:
    """Launch a part's job and return its record, or None if it did not start."""
    before = set(PROJECT.glob(f"runs/{part.name}-*/summary.json"))
    argv = LAUNCH + [word for option in [f"job_name={part.name}", *part.options] for word in ("-e", option)]
    print("  " + " ".join(argv) + "\n", flush=True)
    # The exit status says only whether the job failed, which two of the three have to.
    subprocess.run(argv, cwd=PROJECT, check=False)
    return next(iter(set(PROJECT.glob(f"runs/{part.name}-*/summary.json")) - before), None)


def main() -> int:
    """Run the three jobs and return the exit status."""
    interrupts: list[int] = []
    # launch.yml itself reacts to Ctrl-C, and needs time for it.
    signal.signal(signal.SIGINT, lambda number, _: interrupts.append(number))
    failed, pages = [], []
    for number, part in enumerate(PARTS, 1):
        print(f"\n{number} of {len(PARTS)}: {part.announced}", flush=True)
        record = run(part)
        if record is None or interrupts:
            return 1
        found = part.found(json.loads(record.read_text()))
        failed += [] if found else [part.name]
        pages.append(f"  {part.name:10} {record.with_name('report.html')}")
        print(f"\nfound  {found or 'not what was announced, see above'}\npage   {record.with_name('report.html')}")
    print("\n" + (f"Not as announced: {', '.join(failed)}." if failed else "All three ended as announced."))
    print("\n".join(["Open these pages in a browser:", *pages]))
    print("Does your own job survive? docs/drill.md")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
