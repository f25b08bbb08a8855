#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure trainyard on the lab, side by side with what one would use without it.

Variants alternate within one run and each round starts with another one, so that what the machine does meanwhile meets
all of them; ratios are taken within a round, and their median is printed. All times are wall-clock seconds: the nodes
are containers, so the programs' clock is this process's clock. Prints Markdown and writes .cache/benchmarks/PART.json.

Runs as root on the machine of the lab, like `make lab`: it looks at the ranks' processes from outside.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import json
import os
import re
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from faults import fault, podman
from starting import (
    CACHE,
    INVENTORY,
    NODES,
    PROJECT,
    TINY,
    BenchmarkError,
    FirstNode,
    bare,
    deepspeed,
    launched,
    machine,
    mpirun,
    node_names,
    playbook,
    run,
    sbatch,
    torchrun,
)

PREPARE_S = 3600  # for an installation on all nodes, which share the machine's cores

Times = dict[str, float]
Variant = Callable[[], Times]


def timed(command: Callable[[], str]) -> Times:
    """Return the seconds to the first step and to the command's end."""
    began = time.time()
    output = command()
    returned = time.time() - began
    found = re.search(r"first step at ([\d.]+)", output)
    if found is None:
        raise BenchmarkError(f"no first step in: {output[-2000:]}")
    return {"first step": float(found[1]) - began, "return": returned}


def alternate(variants: Mapping[str, Variant], rounds: int, warm_up: bool = True) -> dict[str, Any]:
    """Run all variants in each round, beginning with another one each time; the warm-up round does not count."""
    names = list(variants)
    measured: list[dict[str, Times]] = []
    for number in range(rounds + warm_up):
        print(f"  round {number + (not warm_up)}{' (warm-up)' if warm_up and not number else ''}:", end="", flush=True)
        first, times = number % len(names), {}
        for name in names[first:] + names[:first]:
            times[name] = variants[name]()
            print(f" {name} {'/'.join(f'{value:.4g}' for value in times[name].values())};", end="", flush=True)
        print(flush=True)
        measured.append({name: times[name] for name in names})
    return {"warm_up": measured[0] if warm_up else None, "rounds": measured[int(warm_up) :]}


def table(result: dict[str, Any], against: dict[str, str], digits: int = 1) -> Iterable[str]:
    """Yield the lines of a table: min, median, max, and the median of ratios within a round to other variants."""
    rounds = result["rounds"]
    columns = list(next(iter(rounds[0].values())))
    header = [f"{column}: min / median / max" for column in columns]
    header += [f"{column} {title}" for title in against for column in columns]
    yield f"| variant | {' | '.join(header)} |"
    yield "|---" * (len(header) + 1) + "|"
    for name in rounds[0]:
        cells = []
        for column in columns:
            values = [times[name][column] for times in rounds]
            cells.append(" / ".join(f"{f(values):.{digits}f}" for f in (min, statistics.median, max)))
        for other, column in itertools.product(against.values(), columns):
            ratio = statistics.median(times[name][column] / times[other][column] for times in rounds)
            cells.append(f"{ratio:.2f}")
        yield f"| {name} | {' | '.join(cells)} |"


def measure_launch(rounds: int) -> tuple[dict[str, Any], list[str]]:
    """Seconds from the command to the first step and to the return."""
    n1 = FirstNode()
    variants: dict[str, Variant] = {
        "ssh loop, one rank each": lambda: timed(lambda: n1(bare(TINY, NODES))),
        "mpirun": lambda: timed(lambda: n1(mpirun())),
        "torchrun by hand over ssh": lambda: timed(lambda: n1(torchrun(TINY, NODES))),
        "DeepSpeed over pdsh": lambda: timed(lambda: n1(deepspeed())),
        "launch.yml, direct": lambda: timed(lambda: launched("direct", TINY, NODES, "benchmarks")),
        "launch.yml, torchrun": lambda: timed(lambda: launched("torchrun", TINY, NODES, "benchmarks")),
        "launch.yml, mpirun": lambda: timed(lambda: launched("mpirun", TINY, NODES, "benchmarks")),
    }
    result = alternate(variants, rounds)
    against = {"/ DeepSpeed": "DeepSpeed over pdsh", "/ ssh loop": "ssh loop, one rank each"}
    return result, list(table(result, against))


def measure_slurm(rounds: int) -> tuple[dict[str, Any], list[str]]:
    """Seconds from the command to the first step and to the return, in a queue that is empty."""
    playbook("molecule/slurm/cluster.yml", limit_s=PREPARE_S)
    n1 = FirstNode()
    variants: dict[str, Variant] = {
        "sbatch, srun torchrun": lambda: timed(lambda: n1(sbatch(TINY, NODES))),
        "launch.yml, torchrun, ssh": lambda: timed(lambda: launched("torchrun", TINY, NODES, "benchmarks")),
        "launch.yml, torchrun, Slurm": lambda: timed(
            lambda: launched("torchrun", TINY, NODES, "benchmarks", job_scheduler="slurm")
        ),
    }
    result = alternate(variants, rounds)
    return result, list(table(result, {"/ sbatch": "sbatch, srun torchrun", "/ ssh": "launch.yml, torchrun, ssh"}))


def measure_site(rounds: int) -> tuple[dict[str, Any], list[str]]:
    """Seconds, and CPU seconds of the controller, of a site.yml without changes, with and without verification."""
    there = len(re.findall(r"^\s+n\d+:", (INVENTORY / "hosts.yml").read_text(), re.MULTILINE))

    def used() -> float:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return children.ru_utime + children.ru_stime

    def site(count: int, *arguments: str) -> Times:
        began, before = time.time(), used()
        output = playbook("site.yml", "--limit", f"compute[0:{count - 1}],localhost", *arguments)
        changed = sum(map(int, re.findall(r"changed=(\d+)", output)))
        return {"seconds": time.time() - began, "controller CPU s": used() - before, "changed": changed}

    sizes = [count for count in (2, 4, 8) if count <= there]
    variants: dict[str, Variant] = {}
    for count in sizes:
        variants[f"{count} nodes"] = functools.partial(site, count)
        variants[f"{count} nodes, without verification"] = functools.partial(site, count, "--skip-tags", "verify")
    result = alternate(variants, rounds)
    changed = sum(int(times.pop("changed")) for each in result["rounds"] for times in each.values())
    note = [] if not changed else ["", f"NOT a no-op: {changed} tasks changed something."]
    return result, [*table(result, {"/ 2 nodes": "2 nodes"}), *note]


def measure_failure(rounds: int) -> tuple[dict[str, Any], list[str]]:
    """Seconds from a fault to the end of all other ranks."""
    variants = {
        f"{launcher}, {text}": functools.partial(fault, launcher, kind)
        for launcher in ("direct", "torchrun")
        for kind, text in (("kill", "a rank killed with SIGKILL"), ("pause", "a node frozen"))
    }
    result = alternate(variants, rounds, warm_up=False)
    return result, list(table(result, {}))


@contextlib.contextmanager
def at_switches(groups: list[list[str]], seconds: float, rate: float) -> Iterator[None]:
    """Let each group of nodes of the lab be at a switch, with an uplink of so many bytes a second (delay.py)."""
    shown = "{{.State.Pid}} {{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
    nodes = {name: podman("inspect", name, f"--format={shown}").split() for group in groups for name in group}
    with contextlib.ExitStack() as started:
        uplinks = Path(started.enter_context(tempfile.TemporaryDirectory()))
        for group in groups:
            far = [address for name, (_, address) in nodes.items() if name not in group]
            for name in group:
                argv = ["nsenter", f"--net=/proc/{nodes[name][0]}/ns/net", sys.executable, "benchmarks/delay.py"]
                argv += [str(seconds), str(rate), str(uplinks / group[0]), *far]
                process = subprocess.Popen(argv, cwd=PROJECT, stdout=subprocess.PIPE, text=True)
                started.callback(process.wait)
                started.callback(process.kill)
                if process.stdout is None or process.stdout.readline() != "ready\n":
                    raise BenchmarkError(f"delay.py did not begin on {name}")
        yield


def measure_topology(rounds: int) -> tuple[dict[str, Any], list[str]]:
    """Seconds of a step that reduces 4 MB, where every other node of the inventory is at another switch."""
    names = node_names(NODES)
    groups = [names[::2], names[1::2]]

    def steps(order: str) -> Times:
        output = launched("direct", [*TINY, "--steps=10", "--width=2048"], NODES, "benchmarks", job_rank_order=order)
        first, last = (float(found) for found in re.findall(r"(?:first|last) step at ([\d.]+)", output))
        return {"s a step": (last - first) / 9}

    # 5 ms away, as a latency beyond the noise of this machine; an uplink of 10 MB/s.
    with at_switches(groups, 0.005, 1e7):
        verified = {"verify_phases": ["stragglers"], "verify_rounds": "full", "trainyard_runs": str(CACHE / "runs")}
        before = set((CACHE / "runs").glob("verify-*/report.json"))
        # Its status is that of nodes that share few cores with these programs; its report is what counts.
        output = ""
        try:
            playbook("playbooks/verify.yml", "-e", json.dumps(verified), limit_s=PREPARE_S)
        except BenchmarkError as error:
            output = str(error)
        reports = set((CACHE / "runs").glob("verify-*/report.json")) - before
        topology = json.loads(reports.pop().read_text())["topology"] if reports else None
        if [switch["hosts"] for switch in (topology or {}).get("switches", ())] != groups:
            raise BenchmarkError(f"verify.yml found {topology}, expected the groups {groups}\n{output}")
        result = alternate({order: functools.partial(steps, order) for order in ("inventory", "topology")}, rounds)
    return {"topology": topology, **result}, list(table(result, {"/ inventory": "inventory"}, digits=2))


def share(part: int, whole: int) -> str:
    """Return a share in percent with as many digits as keep 100 % apart from what is not all."""
    return "-" if not whole else "100" if part == whole else f"{min(99.9, 100 * part / whole):.1f}"


def simulated(*arguments: str) -> Any:
    """Run the simulator of the judgement of stragglers; return what it printed."""
    return json.loads(run([sys.executable, "benchmarks/stragglers.py", *arguments], limit_s=1800))


def measure_stragglers(_: int) -> tuple[dict[str, Any], list[str]]:
    """Return the results of pair checks on simulated clusters with planted faults, their seconds and memory."""
    result: dict[str, Any] = {name: simulated(name) for name in ("faults", "noise", "confidence")}
    lines = []
    for name in ("faults", "noise"):
        cells = result[name]
        columns = list(dict.fromkeys(cell["column"] for cell in cells))
        lines += ["", f"| {name} | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
        for row in dict.fromkeys(cell["row"] for cell in cells):
            found = [cell for cell in cells if cell["row"] == row]
            lines.append(f"| {row} | {' | '.join(share(cell['hits'], cell['planted']) for cell in found)} |")
        # A row of the noise is one size.
        healthy = sum(cell["nodes"] * cell["clusters"] - cell["planted"] for cell in cells)
        false, doubted = (sum(cell[key] for cell in cells) for key in ("false_alarms", "doubted"))
        lines += ["", f"{name}: of {healthy} healthy nodes {false} were named, {doubted} left undecided"]
        rounds = [sorted(cell["rounds_median"] for cell in cells), max(cell["rounds_most"] for cell in cells)]
        lines.append(f"rounds: {statistics.median(rounds[0]):.0f} in the median of the cells, at most {rounds[1]}")
    lines += ["", "| result | confidence from | nodes | right % |", "|---|---|---|---|"]
    for row in result["confidence"]:
        columns = [row["state"], str(row["confidence_from"]), str(row["nodes"]), share(row["right"], row["nodes"])]
        lines.append(f"| {' | '.join(columns)} |")
    sizes: list[tuple[str, ...]] = [(size,) for size in ("64", "256", "1024", "4096")]
    sizes += [(size, "--full") for size in ("64", "256", "1024")]
    result["cost"] = [{**simulated("cost", "--nodes", *size), "full": len(size) > 1} for size in sizes]
    lines += ["", "| nodes | rounds | measurements | seconds to judge | peak MiB |", "|---|---|---|---|---|"]
    for cost in result["cost"]:
        columns = [cost["nodes"], cost["rounds"], cost["measurements"], cost["seconds"], cost["peak MiB"]]
        lines.append(f"| {' | '.join(map(str, columns))} |")
    return result, lines


def measure_scale(_: int) -> tuple[dict[str, Any], list[str]]:
    """What up to 4,000 simulated nodes cost: plans and launch.yml --check the controller, monitors the head's."""

    def scale(what: str, count: int) -> Any:
        return json.loads(run([sys.executable, "benchmarks/scale.py", what, str(count)], limit_s=3600))

    counts = (10, 100, 1000, 4000)
    plans, checks = [scale("plan", count) for count in counts], [scale("check", count) for count in counts]
    launchers = list(plans[0]["launchers"])
    lines = [
        f"| nodes | {' | '.join(f'{name}: plan, render s' for name in launchers)} | peak MiB |",
        "|---|---|---|---|---|",
    ]
    for plan in plans:
        made = [
            f"{plan['launchers'][name]['plan_s']:.3f}, {plan['launchers'][name]['render_s']:.3f}" for name in launchers
        ]
        lines.append(f"| {plan['nodes']} | {' | '.join(made)} | {plan['peak MiB']} |")
    header = [f"facts {facts}: {column}" for facts in ("asked", "cached") for column in ("s", "cpu s", "peak MiB")]
    lines += ["", f"| launch.yml --check: nodes | {' | '.join(header)} |", "|---" * (len(header) + 1) + "|"]
    for check in checks:
        cells = [str(value) for facts in ("asked", "cached") for value in check[facts].values()]
        lines.append(f"| {check['nodes']} | {' | '.join(cells)} |")
    # Short, so each is repeated.
    joins = {count: [scale("join", count) for _ in range(5)] for count in (1000, 4000)}
    columns = ["joined_s", "head, cores", "longest silence_s", "head MiB"]
    lines += ["", f"| monitors | {' | '.join(columns)}: min / median / max |", "|---" * (len(columns) + 1) + "|"]
    for count, rounds in joins.items():
        cells = [" / ".join(f"{f(one[column] for one in rounds):g}" for f in (min, statistics.median, max))
                 for column in columns]  # fmt: skip
        lines.append(f"| {count} | {' | '.join(cells)} |")
    return {"plans": plans, "checks": checks, "joins": joins}, lines


def peak_memory(argv: list[str]) -> int:
    """Run a command, whatever its status, and return the most memory that its processes had together, in MiB."""
    process = subprocess.Popen(
        argv, cwd=PROJECT, start_new_session=True, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    peak = 0
    try:
        while process.poll() is None:
            peak = max(peak, _memory_of_descent(process.pid))
            time.sleep(0.2)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return peak


def _memory_of_descent(first: int) -> int:
    """Return the proportional memory of a process and all that descend from it, in MiB; shared pages count once.

    Ansible's workers have sessions of their own.
    """
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    family, size = {first}, 0
    while len(family) > size:
        size = len(family)
        family |= {process for process, parent in parents.items() if parent in family}
    total = 0
    for process in family:
        with contextlib.suppress(OSError, TypeError):
            found = re.search(r"^Pss:\s+(\d+)", Path(f"/proc/{process}/smaps_rollup").read_text(), re.M)
            total += int(found[1])  # type: ignore[index]
    return total // 1024


PARTS = {
    "launch": (measure_launch, 5),
    "slurm": (measure_slurm, 5),
    "site": (measure_site, 3),
    "failure": (measure_failure, 3),
    "topology": (measure_topology, 5),
    "stragglers": (measure_stragglers, 1),
    "scale": (measure_scale, 1),
}
WITHOUT_LAB = {"stragglers", "scale"}


def main() -> None:
    """Measure the parts that were asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help="all of them without this")
    parser.add_argument("--rounds", type=int, choices=range(1, 1001), metavar="N", help="that count; else 5 or 3")
    options = parser.parse_args()
    CACHE.mkdir(parents=True, exist_ok=True)
    parts = options.parts or list(PARTS)
    if set(parts) - WITHOUT_LAB:
        print("Making the nodes ready", flush=True)
        playbook("site.yml", limit_s=PREPARE_S)
        playbook("benchmarks/prepare.yml", limit_s=PREPARE_S)
    for part in parts:
        measure, rounds = PARTS[part]
        conditions = machine()
        print(f"\n{part}: {measure.__doc__}", flush=True)
        result, lines = measure(options.rounds or rounds)
        (CACHE / f"{part}.json").write_text(json.dumps({"machine": conditions, **result}, indent=1) + "\n")
        text = ", ".join(f"{name} {value}" for name, value in conditions.items())
        print("\n".join(["", *lines, "", text]), flush=True)


if __name__ == "__main__":
    main()
