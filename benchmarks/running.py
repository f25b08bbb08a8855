# SPDX-License-Identifier: Apache-2.0
"""A job that launch.yml runs in the background, looked at from outside: its processes are this machine's, too."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from starting import CACHE, INVENTORY, LAB, LIMIT_S, PROJECT, BenchmarkError, job, run


def framework(launcher: str) -> tuple[str, dict[str, Any]]:
    """Return the framework that the ranks of a launcher have here, and what a job says of it."""
    if launcher in ("mindspore", "msrun"):
        return "mindspore", {"job_venv": "mindspore", "job_packages": ["mindspore"]}
    if launcher == "oneflow":
        return "oneflow", {"job_venv": "oneflow", "job_packages": ["oneflow"]}
    return "torch", {}


def rank_log(launcher: str, rank: int) -> str:
    """Return the name of a rank's log."""
    return f"{'worker' if launcher in ('mindspore', 'msrun') else 'rank'}_{rank}.log"


class RunningJob:
    """A job with a name of its own, so that several may run side by side."""

    def __init__(self, launcher: str, program: list[str], nodes: int, source: str, **more: Any) -> None:
        """Start it."""
        self.launcher, self.nodes, self.name = launcher, nodes, f"bench-{uuid.uuid4().hex[:8]}"
        arguments = job(launcher, program, nodes, source, job_name=self.name, **more)
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the job
        self.process = subprocess.Popen(
            ["ansible-playbook", "launch.yml", "-i", str(INVENTORY), *arguments], cwd=PROJECT,
            stdin=subprocess.DEVNULL, stdout=self._output, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def __enter__(self) -> RunningJob:
        """Return it."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the controller's part, where it has not ended; the nodes' ends by itself."""
        self.process.terminate()
        self._output.close()

    @property
    def folder(self) -> Path:
        """The folder of its run on the controller, once it is there."""
        found = list((CACHE / "runs").glob(f"{self.name}-*"))
        if not found:
            raise BenchmarkError(f"no run of {self.name}: {self.output()[-2000:]}")
        return found[0]

    def output(self) -> str:
        """Return what launch.yml has printed so far."""
        return os.pread(self._output.fileno(), 1 << 20, 0).decode(errors="replace")

    def _environments(self) -> Iterator[tuple[int, dict[str, str]]]:
        """Yield process and first environment of all that belongs to the job, on whatever node."""
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                with contextlib.suppress(OSError):
                    pairs = (
                        pair.partition("=") for pair in (folder / "environ").read_text(errors="replace").split("\0")
                    )
                    env = {name: value for name, _, value in pairs}
                    if env.get("TRAINYARD_JOB_ID", "").startswith(f"{self.name}-"):
                        yield int(folder.name), env

    def left(self) -> list[int]:
        """Return the processes of the job that live, on whatever node."""
        return [pid for pid, _ in self._environments() if alive(pid)]

    def ranks(self) -> dict[int, int]:
        """Return the processes of its ranks, by rank: what starts ranks has none itself, what they start is younger."""
        found = dict[int, int]()
        for pid, env in self._environments():
            number = env.get("MS_NODE_ID", "") if env.get("MS_ROLE") == "MS_WORKER" else env.get("RANK", "")
            if number.isdecimal():
                found.setdefault(int(number), pid)
        return found

    def log(self, rank: int = 0) -> str:
        """Return what a rank has printed so far, as it stands on its node; "" where there is no log yet."""
        with contextlib.suppress(OSError, KeyError):
            path = Path(f"{self.node_folder(rank)}/logs", rank_log(self.launcher, rank))
            return path.read_text(errors="replace")
        return ""

    def node_folder(self, rank: int) -> Path:
        """Return the job's folder on the node of a rank. Raises KeyError where the rank does not run."""
        return Path(f"/proc/{self.ranks()[rank]}/root/var/lib/trainyard/jobs/{self.folder.name}")

    def until(self, condition: Callable[[], Any], what: str, every_s: float = 0.1) -> float:
        """Wait while the job runs, and return the time at which the condition held."""

        def held() -> bool:
            if condition():
                return True
            if self.process.poll() is not None:
                raise BenchmarkError(f"{self.name} ended before {what}: {self.output()[-2000:]}")
            return False

        return wait_until(held, what, every_s)

    def trains(self, sign: str) -> None:
        """Wait until all ranks run and rank 0 has printed the sign."""
        self.until(lambda: sign in self.log() and len(self.ranks()) == self.nodes, "all ranks training", 0.5)

    def wait(self, status: int) -> None:
        """Wait for the end of launch.yml, which has to have this status."""
        if self.process.wait(LIMIT_S) != status:
            raise BenchmarkError(
                f"launch.yml ended with {self.process.returncode}, expected {status}: {self.output()[-3000:]}"
            )


def alive(pid: int) -> bool:
    """Return whether the process is there and more than a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False


def wait_until(condition: Callable[[], Any], what: str, every_s: float = 0.02, limit_s: float = LIMIT_S) -> float:
    """Wait, and return the time at which the condition held."""
    until = time.time() + limit_s
    while not condition():
        if time.time() > until:
            raise BenchmarkError(f"{what}: not after {limit_s:g} s")
        time.sleep(every_s)
    return time.time()


def podman(verb: str, node: str) -> None:
    """Freeze or thaw a node."""
    run(["podman", verb, f"{LAB}-{node}"], env={"CONTAINERS_CONF": str(PROJECT / "molecule/default/containers.conf")})
