# SPDX-License-Identifier: Apache-2.0
"""Kill ranks of a job that may start again, and hold what it says of that against what its ranks have printed."""

from __future__ import annotations

import json
import os
import re
import signal
import statistics
import time
from collections.abc import Iterable

from running import RunningJob, framework, rank_log
from starting import LIMIT_S

# Ranks that are killed, one after another, each so many steps after the job's last first one.
KILLED = (2, 1, 0)
STEPS_BETWEEN = 80
TOTAL_STEPS = 360
NODES = 3
_STEP = re.compile(r"step (\d+)/\d+ loss \S+ took ([\d.]+) at ([\d.]+)")
Step = tuple[int, float, float]


def steps_of(log: str) -> list[list[Step]]:
    """Return the steps of each attempt: number, seconds, and the time at which it was done."""
    return [
        [(int(step), float(took), float(at)) for step, took, at in _STEP.findall(part)]
        for part in log.split("--- started again")
    ]


def useful_s(attempts: Iterable[list[Step]]) -> float:
    """Return the seconds of the steps that count: what counts of one that was done twice is the last time."""
    return sum({step: took for steps in attempts for step, took, _ in steps}.values())


def by_its_pace(steps: list[Step]) -> list[Step]:
    """Return an attempt whose first step took what its others take: what it compiled is a part of the start."""
    usual = statistics.median(took for _, took, _ in steps)
    return [(number, min(took, usual) if at == 0 else took, done) for at, (number, took, done) in enumerate(steps)]


def restarted(launcher: str) -> dict[str, float]:
    """Run a job with three killed ranks; seconds to the first and to the next steps, and goodput beside the truth."""
    killed = []
    name, needed = framework(launcher)
    with RunningJob(
        launcher, ["tiny_resumed.py", f"--framework={name}", f"--steps={TOTAL_STEPS}"], NODES, "benchmarks",
        job_max_restarts=len(KILLED), job_timeout=3 * LIMIT_S, **needed,
    ) as job:  # fmt: skip

        def ready(number: int) -> bool:
            attempts = steps_of(job.log())
            return len(attempts) > number and len(attempts[number]) >= STEPS_BETWEEN and len(job.ranks()) == NODES

        for number, rank in enumerate(KILLED):
            job.until(lambda number=number: ready(number), f"{STEPS_BETWEEN} steps of attempt {number}")
            killed.append(time.time())
            os.kill(job.ranks()[rank], signal.SIGKILL)
        job.wait(0)
        folder = job.folder
    summary = json.loads((folder / "summary.json").read_text())
    attempts = steps_of((folder / "logs" / rank_log(launcher, 0)).read_text())
    first_s = attempts[0][0][2] - attempts[0][0][1] - summary["started"]
    next_s = [steps[0][2] - steps[0][1] - at for steps, at in zip(attempts[1:], killed)]
    truth, whole = (100 * useful_s(each) / summary["elapsed_s"] for each in (map(by_its_pace, attempts), attempts))
    said = 100 * summary["goodput"]["share"]
    return {
        "first start": first_s,
        "kill to next step": statistics.median(next_s),
        "ratio": statistics.median(next_s) / first_s,
        "goodput %": said,
        "truth %": truth,
        "difference / truth %": 100 * abs(said - truth) / truth,
        "truth, first steps whole %": whole,
    }
