#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure the device of this process alone: matrix products, memory, copies, and the bits of a seeded training step.

All devices of a node work at once, as in a training. The work is done in a process that may hang, and one line printed:

    device {"device": {"kind": "cuda", "name": "NVIDIA H200", ...}, "rates": {"bf16": [661.2, 660.8]},
            "memory": [4300.1, 4298.0], "to_device": [56.1, 56.0], "from_device": [55.9, 56.0],
            "bits": [{"output of layer 0": "9f2a...", ...}], "load": {...}, "error": ""}

Rates in TFLOP/s (1e12), memory and copies in GB/s (1e9 bytes; a copy inside the memory counts what it reads and what it
writes). Each figure is measured twice, the second time when all were measured once. `device` has what two devices must
share before their figures or bits may be compared. Exit status: 0 also where a device has an error.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from own_process import Report, in_own_process

# A batch of operations lasts so long at least, so that waiting for the device costs nothing.
BATCH_S = 0.02
PASSES = 2
# How often the seeded step is repeated on the same device, and how many layers it has.
REPEATS, LAYERS = 3, 4
# How long the processes of a node wait for each other, in seconds: a device that does not start holds nobody up.
TOGETHER_S = 30.0
_LOAD = "name,clocks.sm,power.draw,power.limit,power.default_limit,temperature.gpu"
# cuBLAS reads it when it starts; without it, equal GPUs give different bits.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def sizes(kind: str) -> tuple[int, int, int]:
    """Return the edge of the matrices, that of the seeded step's layers, and bytes of a buffer in the memory."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return (512, 128, min(128 << 20, free // 8)) if kind == "cpu" else (8192, 2048, 1 << 30)


def mixed(places: Any, seed: int) -> Any:
    """Return a number from 0 to 65535 for each place, an int64 of any framework: the same on every device."""
    return (((places + seed * 7_919_777) * 6_364_136_223_846_793_005 + 1_442_695_040_888_963_407) >> 33) & 0xFFFF


def digest(content: bytes) -> str:
    """Return what stands for the bits of a result."""
    return hashlib.sha256(content).hexdigest()[:16]


def processor() -> tuple[str, str]:
    """Return the processor's name and its vector instructions, by which libraries choose what they run."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    found = {line.partition(":")[0].strip(): line.partition(":")[2].strip() for line in lines}
    flags = re.findall(r"\b(?:avx|amx|asimd|sve)\S*", found.get("flags") or found.get("Features") or "")
    return found.get("model name") or found.get("CPU part") or os.uname().machine, " ".join(flags)


def npu_kinds(name: str) -> list[str]:
    """Return the types of numbers that an Ascend NPU multiplies matrices of: bf16 from 910B1 on, not 910B."""
    return ["fp16", "bf16"] if re.search(r"910B\d|910_93|950", name) else ["fp16"]


def cann() -> str:
    """Return the version of the CANN toolkit in this environment, "" where it is not known."""
    home = Path(os.environ.get("ASCEND_HOME_PATH") or os.environ.get("ASCEND_TOOLKIT_HOME") or "/proc/nowhere")
    texts = (path.read_text() for path in home.glob("*-linux/ascend_toolkit_install.info"))
    return next((version for text in texts for version in re.findall(r"^version=(\S+)", text, re.MULTILINE)), "")


def nvidia_load(where: str) -> dict[str, str]:
    """Return name, clock, power and temperature of an NVIDIA GPU, as nvidia-smi says them; {} without it."""
    command = ["nvidia-smi", f"--id={where}", f"--query-gpu={_LOAD}", "--format=csv,noheader,nounits"]
    try:
        printed = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return {}
    values = [value.strip() for value in printed.strip().split(",")]
    names = ("name", "clock_mhz", "power_w", "power_limit", "power_default", "temperature_c")
    return dict(zip(names, values)) if len(values) == len(names) else {}


def sustained(run: Callable[[], Any], synchronize: Callable[[Any], None], seconds: float) -> float:
    """Return how often an operation runs in a second, over `seconds` after a warm-up; `synchronize` awaits a result."""
    times = 1
    while True:
        began = time.perf_counter()
        for _ in range(times):
            result = run()
        synchronize(result)
        if time.perf_counter() - began >= BATCH_S:
            break
        times *= 2
    for least in (seconds / 2, seconds):
        done, began = 0, time.perf_counter()
        while time.perf_counter() - began < least:
            for _ in range(times):
                result = run()
            synchronize(result)
            done += times
    return done / (time.perf_counter() - began)


def measure(make: Callable[[], Any], together: Callable[[], None], seconds: float, report: Report) -> None:
    """Measure a device, and report each figure as soon as it is there."""
    report({"stage": "its start"})
    device = make()
    report({"device": device.about()})
    # Other programs disturb a processor anyway, and hosts may share it.
    seconds *= 0.3 if device.kind == "cpu" else 1
    together()
    for _ in range(PASSES):
        for figure, work in device.work().items():
            report({"stage": figure})
            factor, run = work
            each = sustained(run, device.synchronize, seconds) * factor
            report({"figure": figure, "value": float(f"{each:.4g}")})
            if figure.startswith("rates."):
                report({"load": device.load()})
    for _ in range(REPEATS if getattr(device, "deterministic", True) else 0):
        report({"stage": "the seeded step"})
        report({"bits": device.bits()})
    report({"stage": ""})


def line(told: Iterable[dict[str, Any]], timeout_s: float) -> dict[str, Any]:
    """Return the line of a device from what its process reported."""
    found: dict[str, Any] = {"device": {}, "rates": {}, "bits": [], "load": {}, "error": ""}
    stage = "its start"
    for each in told:
        if "figure" in each:
            kind, _, name = each["figure"].rpartition(".")
            (found["rates"] if kind else found).setdefault(name, []).append(each["value"])
        elif "bits" in each:
            found["bits"].append(each["bits"])
        stage = each.get("stage", stage)
        found.update({key: each[key] for key in ("device", "load", "error") if key in each})
    if stage and not found["error"]:
        found["error"] = f"no answer within {timeout_s:g} s, at {stage}"
    elif stage and found["error"]:
        found["error"] += f" (at {stage})"
    return found


def wait_for_others(rank: int, ranks: int, folder: Path) -> None:
    """Wait until all processes of this node are here, or have had the time for it."""
    node = os.environ.get("GROUP_RANK", "0")
    (folder / f"here-{node}-{rank}").touch()
    deadline = time.monotonic() + TOGETHER_S
    while len(list(folder.glob(f"here-{node}-*"))) < ranks and time.monotonic() < deadline:
        time.sleep(0.05)


def main() -> int:
    """Measure the device of this process, and return the exit status."""
    parser = argparse.ArgumentParser(description="Measure a device.")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each figure, after a warm-up")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds for the whole")
    given = parser.parse_args()
    rank, ranks = int(os.environ.get("LOCAL_RANK", "0")), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))

    def make() -> Any:
        # Imported here, as a framework that was imported before a fork may hang after it.
        framework = "torch" if find_spec("torch") else "mindspore"
        return import_module(f"device_{framework}").Device(rank)

    def run(report: Report) -> None:
        measure(make, lambda: wait_for_others(rank, ranks, Path.cwd()), given.seconds, report)

    told = in_own_process(run, time.monotonic() + given.timeout)
    sys.stdout.write(f"device {json.dumps(line(told, given.timeout))}\n")
    sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
