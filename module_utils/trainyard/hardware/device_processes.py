# SPDX-License-Identifier: Apache-2.0
"""The processes that use devices, from the outputs of nvidia-smi and npu-smi, and which of them hold a device.

Pure. Memory in MiB; None where a tool does not print it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .accelerators import parse_npu_info
from .tool_text import lines_of, number

GPU_FIELDS = ("index", "uuid", "name", "memory.used", "memory.total", "mig.mode.current")
# The program comes last, as its name may hold a comma.
APP_FIELDS = ("gpu_uuid", "pid", "used_memory", "process_name")
# These keep a context on each GPU for others, watch GPUs, or stop and start with the driver.
SERVERS = ("nvidia-cuda-mps-server",)
SERVICES = ("nvidia-persistenced", "nv-fabricmanager", "nv-hostengine", "dcgm-exporter", "nvidia-smi")
# The kernel cuts names of programs after 15 bytes.
NAME_BYTES = 15
# The context of a program that computes takes more than this, in MiB; displays and monitors take less.
LEAST_MIB = 100
# From this part of a GPU's memory on, what no listed process has is somebody's: drivers and desktops take less.
UNLISTED = 0.5
# The system itself uses the memory of these GPUs, for example for files (GH200, GB200, GB300, GB10).
_SHARED_MEMORY = re.compile(r"\bG[HB]\d")
_NPU_PROCESS = re.compile(r"\|\s*(\d{1,4})\s+(\d{1,4})\s*\|\s*(\d{1,10})\s*\|([^|]*)\|\s*(\d{1,9})\s*\|")


class Use(NamedTuple):
    """The memory of a device that a process has; its id is 0 for memory of no listed process."""

    device: int
    pid: int
    program: str
    mib: int | None


class Gpu(NamedTuple):
    """A GPU by its UUID: its number, the memory that programs have if that is known, all memory, divided by MIG."""

    number: int
    mib: int | None
    total: int | None
    mig: bool


def gpus(output: str) -> dict[str, Gpu]:
    """Read `nvidia-smi --query-gpu` of GPU_FIELDS, or of all but the last, in csv,noheader,nounits."""
    rows = [[cell.strip() for cell in line.split(",")] for line in lines_of(output)]
    return {
        row[1]: Gpu(
            int(row[0]),
            None if _SHARED_MEMORY.search(row[2]) else number(row[3]),
            number(row[4]),
            row[5:] == ["Enabled"],
        )
        for row in rows
        if len(row) >= 5 and number(row[0]) is not None
    }


def compute_apps(output: str, known: Mapping[str, Gpu]) -> list[Use]:
    """Read `nvidia-smi --query-compute-apps` of APP_FIELDS in csv,noheader,nounits; an unknown GPU has index -1."""
    found = []
    for line in lines_of(output):
        cells = [cell.strip() for cell in line.split(",", len(APP_FIELDS) - 1)]
        pid = number(cells[1]) if len(cells) == len(APP_FIELDS) else None
        if pid is not None:
            index = known[cells[0]].number if cells[0] in known else -1
            found.append(Use(index, pid, cells[3].rpartition("/")[2][:80] or "a program", number(cells[2])))
    return found


def npu_processes(table: str, mapping: str | None) -> list[Use]:
    """Read the list of processes of `npu-smi info`; `mapping` is `npu-smi info -m`, as in parse_npu_info."""
    places = {(each["card"], each["chip"]): each["index"] for each in parse_npu_info(table, mapping)["devices"]}
    found = []
    for card, chip, pid, program, mib in _NPU_PROCESS.findall(table.partition("Process id")[2]):
        index = places.get((int(card), int(chip)))
        if index is not None:
            found.append(Use(index, int(pid), program.strip()[:80] or "a program", int(mib)))
    return found


def holding(uses: Sequence[Use], known: Mapping[str, Gpu], others: Sequence[str] = ()) -> list[Use]:
    """Return who holds a device: not services and `others`, nor displays and what has little memory.

    A GPU that MIG divides is left out, as the other slices are no one's loss. Where no process is listed for the memory
    that a GPU has in use, as of other containers, that is a use of its own.
    """
    ignored = {name[:NAME_BYTES] for name in (*SERVERS, *SERVICES, *others)}
    divided = {gpu.number for gpu in known.values() if gpu.mig}
    listed = {use.device for use in uses if use.mib is None or use.mib >= LEAST_MIB}
    found = [
        use
        for use in uses
        if use.device not in divided
        and use.program[:NAME_BYTES] not in ignored
        and (use.mib is None or use.mib >= LEAST_MIB)
    ]
    unlisted = [
        Use(gpu.number, 0, "", gpu.mib)
        for gpu in known.values()
        if not gpu.mig and gpu.mib and gpu.total and gpu.mib >= UNLISTED * gpu.total and gpu.number not in listed
    ]
    return sorted([*found, *unlisted])


def size(mib: int | None) -> str:
    """Return an amount of memory for people."""
    if mib is None:
        return "an unknown amount of memory"
    return f"{mib} MiB" if mib < 1024 else f"{mib / 1024:.1f} GiB" if mib < 10_240 else f"{mib / 1024:.0f} GiB"
