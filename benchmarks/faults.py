# SPDX-License-Identifier: Apache-2.0
"""Break a running job, and measure how long its other ranks live on; their processes are this machine's, too."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from starting import CACHE, INVENTORY, LAB, LIMIT_S, NODES, PROJECT, TINY, BenchmarkError, job, node_names, run


class RunningJob:
    """A job that launch.yml runs in the background."""

    def __init__(self, launcher: str, program: list[str], nodes: int) -> None:
        """Start it, with a name of its own."""
        self.nodes, self.name = nodes, f"bench-{uuid.uuid4().hex[:8]}"
        arguments = job(launcher, program, nodes, "benchmarks", job_name=self.name)
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the job
        self.process = subprocess.Popen(
            ["ansible-playbook", "launch.yml", "-i", str(INVENTORY), *arguments], cwd=PROJECT,
            stdin=subprocess.DEVNULL, stdout=self._output, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def __enter__(self) -> RunningJob:
        """Return it."""
        return self

    def __exit__(self, *_: object) -> None:
        """End launch.yml, if it still runs; the nodes end the job by themselves."""
        self.process.terminate()
        self._output.close()

    def _tail(self) -> str:
        return os.pread(self._output.fileno(), 1 << 20, 0).decode(errors="replace")[-3000:]

    def _environments(self) -> Iterator[tuple[int, dict[str, str]]]:
        """Yield process and environment of each process of the job, on any node."""
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                text = (folder / "environ").read_text(errors="replace")
                env = dict(pair.partition("=")[::2] for pair in text.split("\0"))
                if env.get("TRAINYARD_JOB_ID", "").startswith(f"{self.name}-"):
                    yield int(folder.name), env

    def ranks(self) -> dict[int, int]:
        """Return the processes of the ranks, by rank: agents have no RANK, children of ranks are younger."""
        found: dict[int, int] = {}
        for pid, env in self._environments():
            if env.get("RANK", "").isdecimal():
                found.setdefault(int(env["RANK"]), pid)
        return found

    def _log(self) -> str:
        """Return what rank 0 has printed so far; "" if there is no log yet."""
        with contextlib.suppress(OSError, KeyError, ValueError):
            (folder,) = (CACHE / "runs").glob(f"{self.name}-*")
            root = Path(f"/proc/{self.ranks()[0]}/root/var/lib/trainyard/jobs")
            return (root / folder.name / "logs/rank_0.log").read_text(errors="replace")
        return ""

    def wait_for_training(self, sign: str) -> None:
        """Wait until all ranks run and rank 0 has printed the sign."""

        def trains() -> bool:
            if self.process.poll() is not None:
                raise BenchmarkError(f"{self.name} ended before all ranks trained: {self._tail()}")
            return sign in self._log() and len(self.ranks()) == self.nodes

        wait_until(trains, "all ranks training", 0.5)

    def wait(self, status: int) -> None:
        """Wait for the end of launch.yml, which has to have this status."""
        if self.process.wait(LIMIT_S) != status:
            raise BenchmarkError(f"launch.yml ended with {self.process.returncode}, expected {status}: {self._tail()}")


def alive(pid: int) -> bool:
    """Return whether the process is there and more than a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False


def wait_until(condition: Callable[[], Any], what: str, every_s: float = 0.02) -> float:
    """Wait, and return the time at which the condition held."""
    until = time.time() + LIMIT_S
    while not condition():
        if time.time() > until:
            raise BenchmarkError(f"{what}: not after {LIMIT_S} s")
        time.sleep(every_s)
    return time.time()


def podman(verb: str, node: str, *options: str) -> str:
    """Freeze, thaw or inspect a node."""
    env = {"CONTAINERS_CONF": str(PROJECT / "molecule/default/containers.conf")}
    return run(["podman", verb, *options, f"{LAB}-{node}"], env=env)


def fault(launcher: str, kind: str) -> dict[str, float]:
    """Break a running job, and return the seconds until the ranks of the other nodes and the command have ended."""
    broken, victim = NODES - 1, node_names(NODES)[-1]
    with RunningJob(launcher, [*TINY, "--steps=100000", "--pause=0.1"], NODES) as running:
        running.wait_for_training("first step")
        ranks = running.ranks()
        others = [pid for rank, pid in ranks.items() if rank != broken]
        began = time.time()
        try:
            if kind == "kill":
                os.kill(ranks[broken], signal.SIGKILL)
            else:
                podman("pause", victim)
            ended = wait_until(lambda: not any(map(alive, others)), "end of the other ranks")
            running.wait(2)
            returned = time.time()
        finally:
            if kind == "pause":
                podman("unpause", victim)
        wait_until(lambda: not running.ranks(), "end of the ranks of the broken node")
    return {"other ranks ended": ended - began, "return": returned - began}
