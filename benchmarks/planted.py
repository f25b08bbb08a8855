#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plant hangs and causes of failure many times, and hold what launch.yml says against what was planted.

planted.py hangs --launchers direct,mpirun --kinds sleep,stop --rounds 10     one rank does not come to a collective
planted.py causes --launchers torchrun --kinds kill --rounds 20               a rank, its monitor or its node is lost
planted.py pauses --rounds 20                                                 an evaluation that is no hang

Jobs that hang use no processor, so five run side by side. Said is `right`, `wrong` or `not sure`: then nobody is named,
or with the words that nobody is known to have failed. Times are seconds; all hosts of the lab share one clock.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import re
import signal
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ansible.module_utils
from running import RunningJob, alive, framework, podman, wait_until
from starting import CACHE, NODES, PROJECT, BenchmarkError

# As Ansible itself finds them.
ansible.module_utils.__path__.append(str(PROJECT / "module_utils"))
from ansible.module_utils.trainyard.job.run import causes, kernel_messages

VICTIM, NODE = 2, "n3"
HANG_S, PAUSE_S = 20, 15
PARALLEL = 5
SETTLE_S = 5.0
WORKER = "molecule/jobs/worker"
HANGS = ("sleep", "stop", "lock", "fifo")
HANG_LAUNCHERS = ("direct", "torchrun", "mpirun", "mindspore")
CAUSES = ("leave", "kill", "monitor", "memory", "freeze")
CAUSE_LAUNCHERS = ("direct", "torchrun", "mpirun")
# What has to stand in the report.
SAYS = {
    "hang": rf"hung: no new progress.*\brank {VICTIM} on {NODE} is ",
    "leave": rf"rank {VICTIM} on {NODE} ended first, with exit code 0",
    "kill": rf"rank {VICTIM} on {NODE} failed first: killed by SIGKILL",
    "memory": rf"rank {VICTIM} on {NODE} failed first: killed by SIGKILL",
    "monitor": rf"the monitor of {NODE} ended first, and rank {VICTIM} with it",
    "freeze": rf"node {NODE} with rank {VICTIM} went silent",
    "pause": r"\bsucceeded in ",
}
NOT_SURE = f"{re.escape(causes.UNSURE)}|no rank stands out"
Run = dict[str, Any]


def started(launcher: str, *arguments: str, **more: Any) -> RunningJob:
    """Start ranks that reduce a number in each step, one on each node."""
    name, needed = framework(launcher)
    return RunningJob(launcher, ["hangs.py", f"--framework={name}", *arguments], NODES, WORKER, **needed, **more)


def steps(log: str) -> list[float]:
    """Return when rank 0 took its steps."""
    return [float(at) for at in re.findall(r"^step \d+/\d+ .* at ([\d.]+)$", log, re.MULTILINE)]


def judged(job: RunningJob, kind: str, **more: Any) -> Run:
    """Say what came of a job that is over."""
    told = " ".join(job.output().split())
    found = re.search(r"\bJob \S+ (?:failed|succeeded|timed out|was stopped) after .*", told)
    told = found[0] if found else told[-600:]
    verdict = "right" if re.search(SAYS[kind], told) else "not sure" if re.search(NOT_SURE, told) else "wrong"
    with contextlib.suppress(BenchmarkError):
        wait_until(lambda: not job.left(), "", 0.5, SETTLE_S)
    return {"verdict": verdict, "said": told[:600], "left": len(job.left()), "run": job.folder.name, **more}


def stacks_told(folder: Path) -> int:
    """Return of how many ranks there is a Python stack in the logs."""
    texts = (path.read_text(errors="replace") for path in folder.glob("logs/stacks_*.log"))
    blocks = itertools.chain.from_iterable(re.split(r"^(?=rank \d+  pid )", text, flags=re.MULTILINE) for text in texts)
    return len({block.split()[1] for block in blocks if re.search(r"^  MainThread$", block, re.MULTILINE)})


def hang(launcher: str, kind: str) -> Run:
    """Have a rank that does not come to step 5; seconds from step 4 until no rank lives."""
    with started(launcher, f"--rank={VICTIM}", f"--how={kind}", job_hang_timeout=HANG_S) as job:
        job.trains("step 4/")
        ranks, log = job.ranks().values(), job.log()
        down = wait_until(lambda: not any(map(alive, ranks)), "end of all ranks", 0.1)
        job.wait(2)
        return judged(job, "hang", seconds=down - steps(log)[-1], stacks=stacks_told(job.folder))


def _break(job: RunningJob, kind: str) -> None:
    """Kill a rank or its monitor, or let the memory of the rank's slice run out."""
    rank = job.ranks()[VICTIM]
    if kind == "kill":
        os.kill(rank, signal.SIGKILL)
    elif kind == "monitor":
        here = Path(f"/proc/{rank}/ns/pid").readlink()
        for pid in job.left():
            with contextlib.suppress(OSError):
                argv = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                if b"monitor" in argv and Path(f"/proc/{pid}/ns/pid").readlink() == here:
                    os.kill(pid, signal.SIGKILL)
                    return
        raise BenchmarkError(f"no monitor on {NODE}")


@contextlib.contextmanager
def slice_without_memory(job: RunningJob) -> Iterator[None]:
    """Give a rank a slice with 64 MiB more than it has, made from outside: systemd in the lab may make none."""
    rank = job.ranks()[VICTIM]
    paths = dict(line.split(":", 2)[1:] for line in Path(f"/proc/{rank}/cgroup").read_text().splitlines())
    name = f"trainyard-{job.folder.name.replace('-', '_')}.slice"
    folder = Path("/sys/fs/cgroup/memory", paths["memory"].lstrip("/"), name)
    folder.mkdir()
    try:
        (folder / "memory.limit_in_bytes").write_text(str(64 << 20))
        (folder / "cgroup.procs").write_text(str(rank))
        yield
        wait_until(lambda: not (folder / "cgroup.procs").read_text(), "end of the rank", 0.2)
    finally:
        with contextlib.suppress(OSError):
            folder.rmdir()


def cause(launcher: str, kind: str) -> Run:
    """Break something of a job that trains; seconds until no rank lives."""
    # Late enough for what is done from outside before.
    planted = {how: [f"--how={how}", f"--rank={VICTIM}", "--at=100"] for how in ("leave", "memory")}
    with started(launcher, "--steps=100000", *planted.get(kind, ())) as job:
        job.trains("step 3/")
        ranks, began, more = job.ranks().values(), time.time(), dict[str, Any]()
        with slice_without_memory(job) if kind == "memory" else contextlib.nullcontext():
            _break(job, kind)
        down = wait_until(lambda: not any(map(alive, ranks)), "end of all ranks", 0.1)
        job.wait(2)
        if kind == "memory":
            # No host of the lab may read the kernel's log, so what a host that may would say is found from here.
            lines = subprocess.run(["dmesg"], check=True, capture_output=True, text=True).stdout.splitlines()
            found = kernel_messages.parse(lines, began - 1, time.time() + 1, time.time() - time.monotonic())
            of_node = [{**each, "hosts": [NODE]} for each in found]
            more["kernel"] = kernel_messages.took(of_node, NODE, job.folder.name)
        return judged(job, kind, seconds=down - began, **more)


def frozen(launcher: str, count: int) -> list[Run]:
    """Freeze a node on which some jobs have a rank; seconds until no rank lives on the others."""
    with contextlib.ExitStack() as stack:
        jobs = [stack.enter_context(started(launcher, "--steps=100000")) for _ in range(count)]
        for job in jobs:
            job.trains("step 3/")
        others = {job: [pid for rank, pid in job.ranks().items() if rank != VICTIM] for job in jobs}
        podman("pause", NODE)
        began = time.time()
        try:
            down = {job: wait_until(lambda job=job: not any(map(alive, others[job])), "end", 0.1) for job in jobs}
            for job in jobs:
                job.wait(2)
        finally:
            podman("unpause", NODE)
        return [judged(job, "freeze", seconds=down[job] - began) for job in jobs]


def pause() -> Run:
    """Run a job whose ranks pause longer than a step may take, and say so before."""
    with started("torchrun", f"--pause={PAUSE_S}", job_hang_timeout=6) as job:
        job.process.wait()
        return judged(job, "pause")


def repeated(what: Callable[..., Run], *arguments: str, rounds: int) -> list[Run]:
    """Return what came of all runs; of one that could not be made, why."""

    def one(_: int) -> Run:
        try:
            return what(*arguments)
        except (BenchmarkError, OSError, LookupError) as error:
            return {"verdict": "not run", "said": f"{type(error).__name__}: {error}"[-600:], "left": 0}

    with ThreadPoolExecutor(PARALLEL) as pool:
        return list(pool.map(one, range(rounds)))


def several(rounds: int) -> Iterator[int]:
    """Yield how many jobs run side by side, until all have run."""
    while rounds > 0:
        yield min(PARALLEL, rounds)
        rounds -= PARALLEL


def line(launcher: str, kind: str, runs: Sequence[Run]) -> str:
    """Return the line of a table."""
    counts = [str(sum(run["verdict"] == verdict for run in runs)) for verdict in ("right", "not sure", "wrong")]
    made = [run for run in runs if run["verdict"] != "not run"]
    times = [run["seconds"] for run in made if "seconds" in run]
    took = " / ".join(f"{f(times):.1f}" for f in (min, statistics.median, max)) if times else "-"
    stacks = "-" if not any("stacks" in run for run in made) else str(min(run["stacks"] for run in made))
    left = str(sum(run["left"] for run in made))
    return f"| {launcher} | {kind} | {len(made)} of {len(runs)} | {' | '.join([*counts, took, stacks, left])} |"


HEADER = (
    "| launcher | planted | runs | right | not sure | wrong | s until all is down: min / median / max "
    "| ranks with a stack, at least | processes left |",
    "|---|---|---|---|---|---|---|---|---|",
)


def table(what: str, rounds: int, launchers: Sequence[str] = (), kinds: Sequence[str] = ()) -> Iterator[str]:
    """Yield a table line by line as runs end, and write each run to .cache/benchmarks/."""
    CACHE.mkdir(parents=True, exist_ok=True)
    yield from HEADER
    ways: Mapping[str, tuple[Sequence[str], Sequence[str]]] = {
        "hangs": (HANG_LAUNCHERS, HANGS), "causes": (CAUSE_LAUNCHERS, CAUSES), "pauses": (("torchrun",), ("pause",)),
    }  # fmt: skip
    for launcher, kind in itertools.product(launchers or ways[what][0], kinds or ways[what][1]):
        load = os.getloadavg()[0]
        if kind == "freeze":
            runs = [run for count in several(rounds) for run in frozen(launcher, count)]
        elif kind == "pause":
            runs = repeated(pause, rounds=rounds)
        else:
            runs = repeated(hang if what == "hangs" else cause, launcher, kind, rounds=rounds)
        with (CACHE / f"{what}.jsonl").open("a") as log:
            log.write(
                "".join(json.dumps({"launcher": launcher, "kind": kind, "load": load, **run}) + "\n" for run in runs)
            )
        yield line(launcher, kind, runs)
        yield from (f"  {run['verdict']}: {run['said']}" for run in runs if run["verdict"] != "right")


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=["hangs", "causes", "pauses"])
    parser.add_argument("--launchers", type=lambda text: text.split(","), default=())
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=())
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    for each in table(options.what, options.rounds, options.launchers, options.kinds):
        print(each, flush=True)


if __name__ == "__main__":
    main()
