# SPDX-License-Identifier: Apache-2.0
"""Break a running job, and see how long its other ranks live on: looked at from outside, by the host's processes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from starting import INVENTORY, LAB, LIMIT_S, NODES, PROJECT, TINY, BenchmarkError, job, node_names, run, runs


def ranks_of(mark: str) -> dict[int, int]:
    """Return the host's process ids of the ranks whose environment has the mark, by rank."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                pairs = (pair.partition("=") for pair in (folder / "environ").read_text(errors="replace").split("\0"))
                env = {name: value for name, _, value in pairs}
                # Agents of torchrun have the mark too, but no rank.
                if env.get("BENCH_MARK") == mark and "RANK" in env:
                    found[int(env["RANK"])] = int(folder.name)
    return found


def alive(pid: int) -> bool:
    """Return whether the process is there and more than a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False


def wait_until(condition: Callable[[], Any], what: str) -> float:
    """Wait, and return the time at which the condition held."""
    until = time.time() + LIMIT_S
    while not condition():
        if time.time() > until:
            raise BenchmarkError(f"{what}: not after {LIMIT_S} s")
        time.sleep(0.02)
    return time.time()


def podman(verb: str, node: str) -> None:
    """Freeze or thaw a node."""
    run(["podman", verb, f"{LAB}-{node}"], env={"CONTAINERS_CONF": str(PROJECT / "molecule/default/containers.conf")})


def fault(launcher: str, kind: str) -> dict[str, float]:
    """Break a running job, and return the seconds until the ranks of the other nodes and the command have ended."""
    mark = uuid.uuid4().hex
    arguments = job(
        launcher, [*TINY, "--steps=100000", "--pause=0.1"], NODES, "benchmarks",
        job_env={"OMP_NUM_THREADS": "1", "BENCH_MARK": mark},
    )  # fmt: skip
    before = runs()
    process = subprocess.Popen(
        ["ansible-playbook", "launch.yml", "-i", str(INVENTORY), *arguments], cwd=PROJECT,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    broken, victim = NODES - 1, node_names(NODES)[-1]

    def stepping() -> bool:
        if process.poll() is not None:
            raise BenchmarkError(f"the job ended by itself: see {runs() - before}")
        ranks = ranks_of(mark)
        if len(ranks) < NODES:
            return False
        (folder,) = runs() - before
        log = Path(f"/proc/{ranks[0]}/root/var/lib/trainyard/jobs/{folder.name}/logs/rank_0.log")
        with contextlib.suppress(OSError):
            return "first step" in log.read_text()
        return False

    try:
        wait_until(stepping, "all ranks training")
        ranks = ranks_of(mark)
        others = [pid for rank, pid in ranks.items() if rank != broken]
        if kind == "kill":
            began = time.time()
            os.kill(ranks[broken], signal.SIGKILL)
        else:
            began = time.time()
            podman("pause", victim)
        ended = wait_until(lambda: not any(map(alive, others)), "end of the other ranks")
        if process.wait(LIMIT_S) != 2:
            raise BenchmarkError(
                f"launch.yml ended with status {process.returncode}, expected 2: see {runs() - before}"
            )
        returned = time.time()
    finally:
        process.terminate()
        if kind == "pause":
            podman("unpause", victim)
    wait_until(lambda: not ranks_of(mark), "end of the ranks of the broken node")
    return {"other ranks gone": ended - began, "return": returned - began}
