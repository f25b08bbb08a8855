# SPDX-License-Identifier: Apache-2.0
"""Slow one node of a running job down, and see whether it is named, and when; and whether anybody is without that."""

from __future__ import annotations

import contextlib
import json
import os
import re
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from running import RunningJob, framework, wait_until
from starting import BenchmarkError, playbook

NODES = 3
# The rank that is slowed down: not the head's.
SLOW = 2
PROGRAM = ["train.py", "--dataset=random", "--random-size=4096", "--model=mlp", "--batch-size=256", "--epochs=100000",
           "--log-every=5"]  # fmt: skip
# Seconds of steps before anything is done, for which nothing disturbs, and for which a node is held at most.
SETTLE_S, HEALTHY_S, HELD_S = 15.0, 90.0, 120.0
_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """Return the seconds of CPU that a process and the children that it waited for have used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / _TICKS


def monitors_of(job_id: str) -> list[int]:
    """Return the host's process ids of the monitors of a job."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                argv = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
                if "monitor" in argv and any(part.endswith(f"/{job_id}") for part in argv):
                    found.append(int(folder.name))
    return found


@contextlib.contextmanager
def held(pid: int, cores: float) -> Iterator[None]:
    """Give the container of a process no more than so many cores meanwhile, by its cgroup (v1 or v2)."""
    lines = [line.split(":", 2) for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines()]
    path = next((path for _, names, path in lines if "cpu" in names.split(",")), None)
    old = path is not None
    place = path or next(path for number, _, path in lines if number == "0")
    # systemd may have put it further down.
    container = re.match(r".*?/libpod-[0-9a-f]+[^/]*", place)
    if container is None:
        raise BenchmarkError(f"{pid} is in no container of podman: {place}")
    folder = Path("/sys/fs/cgroup/cpu" if old else "/sys/fs/cgroup", container[0].lstrip("/"))
    quota = max(2000, round(cores * 100_000))
    name, limit, free = ("cpu.cfs_quota_us", f"{quota}", "-1") if old else ("cpu.max", f"{quota} 100000", "max 100000")
    (folder / name).write_text(limit)
    try:
        yield
    finally:
        (folder / name).write_text(free)


def followed(stragglers: bool, launcher: str = "torchrun") -> dict[str, Any]:
    """Run a job and return its pace and, where stragglers are looked for, who was named: undisturbed, then held.

    Held: one node has half of the CPU that its rank used just before, which is half a CPU where each rank has one of
    its own, until somebody is named.
    """
    name, needed = framework(launcher)
    source = "training/pytorch" if name == "torch" else f"training/{name}"
    with RunningJob(launcher, PROGRAM, NODES, source, job_wait=False, job_timeout=1200,
                    job_stragglers=stragglers, **needed) as job:  # fmt: skip
        job.wait(0)
        try:
            return _look(stragglers, job)
        finally:
            of_run = {"job_id": job.folder.name, "trainyard_runs": str(job.folder.parent)}
            with contextlib.suppress(BenchmarkError):
                playbook("playbooks/stop.yml", "-e", json.dumps(of_run))


def _look(stragglers: bool, job: RunningJob) -> dict[str, Any]:
    job_id = job.folder.name

    def state() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(path.read_text())
        return found

    def named() -> list[str]:
        return [each["host"] for each in state()["stragglers"]]

    # launch.yml is over, and a rank that has just begun has no environment for a moment.
    wait_until(lambda: "step " in job.log() and len(job.ranks()) == NODES, f"{NODES} ranks of {job_id}", 0.5)
    path = job.node_folder(0) / "cluster.json"
    wait_until(lambda: state()["metrics"].get("step"), f"the first step of {job_id}")
    ranks = job.ranks()
    time.sleep(SETTLE_S)
    first, used = state(), {pid: cpu_s(pid) for pid in (*ranks.values(), *monitors_of(job_id))}
    time.sleep(HEALTHY_S)
    last = state()
    passed_s = last["elapsed_s"] - first["elapsed_s"]
    cores = (cpu_s(ranks[SLOW]) - used[ranks[SLOW]]) / HEALTHY_S
    found = {
        "job_id": job_id,
        "stragglers": stragglers,
        "undisturbed": named(),
        "steps/s": round((last["metrics"]["step"] - first["metrics"]["step"]) / passed_s, 2),
        "cores of the rank": round(cores, 2),
        "monitors, % of a core": [
            round(100 * (cpu_s(pid) - used[pid]) / HEALTHY_S, 2) for pid in used if pid not in ranks.values()
        ],
        "load": round(os.getloadavg()[0], 1),
    }
    if stragglers and not found["undisturbed"]:
        begun = time.monotonic()
        with held(ranks[SLOW], cores / 2):
            while time.monotonic() - begun < HELD_S and not named():
                time.sleep(0.5)
        found |= {"held": named(), "after_s": round(time.monotonic() - begun, 1), "evidence": state()["stragglers"]}
    return found


def measure(rounds: int) -> tuple[dict[str, Any], list[str]]:
    """Who is named of a job that nothing disturbs, then of a node held to half of its CPU; and the pace."""
    runs: list[dict[str, Any]] = []
    ratios: list[float] = []
    for number in range(rounds):
        # The pace beside a job that is not looked at, in every fifth round, and which is first changes.
        both = (True,) if number % 5 != 4 else (True, False) if number % 2 else (False, True)
        pair = {stragglers: followed(stragglers) for stragglers in both}
        for one in pair.values():
            print(json.dumps(one), flush=True)
        runs += pair.values()
        if len(pair) == 2:
            ratios.append(pair[True]["steps/s"] / pair[False]["steps/s"])
    looked = [one for one in runs if one["stragglers"]]
    slow = [one for one in looked if "held" in one]
    after = sorted(one["after_s"] for one in slow if one["held"] == [f"n{SLOW + 1}"])
    within = sum(seconds <= 90 for seconds in after)
    lines = [
        "| jobs | undisturbed: named | held: n3 alone named | within 90 s | s: min / median / max | another named |",
        "|---|---|---|---|---|---|",
        f"| {len(looked)} | {len(looked) - len(slow)} | {len(after)} of {len(slow)} | {within} "
        f"| {f'{after[0]} / {statistics.median(after):.1f} / {after[-1]}' if after else '-'} "
        f"| {sum(bool(one['held']) for one in slow) - len(after)} |",
        "",
        f"Steps a second, over those of a job without: {' / '.join(f'{each:.3f}' for each in sorted(ratios))}",
    ]
    return {"runs": runs, "ratios": ratios}, lines
