# SPDX-License-Identifier: Apache-2.0
"""Parse `nvidia-smi topo -m`: the connections between GPUs and network devices of one node.

Pure. Forms: drivers 384 to 580, which name network devices in the header (`mlx5_0`) or number them (`NIC0`) with a
legend below. The header is underlined by escape sequences even without a terminal, and each affinity at the end of a
row may be missing.
"""

from __future__ import annotations

import re
from typing import TypedDict

from .tool_text import excerpt, lines_of

# From near to far, without NVLink. Drivers before 390 print SOC for SYS.
PCI_WAYS = ("PIX", "PXB", "PHB", "NODE", "SYS", "SOC")

_LINK = re.compile(r"NV[1-9][0-9]{0,2}|" + "|".join(PCI_WAYS))
_GPU = re.compile(r"GPU([0-9]{1,3})")
_NUMBERED = re.compile(r"NIC[0-9]{1,3}")
_DEVICE = re.compile(r"GPU[0-9]{1,3}|NIC[0-9]{1,3}|[a-z][a-z0-9]*_[A-Za-z0-9_.-]+")
_NUMBERS = re.compile(r"[0-9]+(?:-[0-9]+)?(?:,[0-9]+(?:-[0-9]+)?)*")
_LEGEND = re.compile(r"\s*(NIC[0-9]{1,3}):\s+(\S+)\s*")


class Topology(TypedDict):
    """Ways between devices, each known from both ends: `links["GPU0"]["mlx5_1"]` is `PIX`, `NV12` are 12 NVLinks.

    gpus are the indexes, nics the RDMA devices' own names; cpus and numa exist for GPUs, where printed. With
    problems the table is incomplete, and entries of a device may be missing.
    """

    gpus: list[int]
    nics: list[str]
    links: dict[str, dict[str, str]]
    cpus: dict[str, str]
    numa: dict[str, str]
    problems: list[str]


def parse_topology(output: str) -> Topology:
    """Parse `nvidia-smi topo -m` (or `-mp`), also pasted with a prompt before it."""
    found: Topology = {"gpus": [], "nics": [], "links": {}, "cpus": {}, "numa": {}, "problems": []}
    problems = found["problems"]
    columns: list[str] = []
    affinities: list[str] = []
    rows: dict[str, list[str]] = {}
    names: dict[str, str] = {}
    for line in lines_of(output):
        words = line.split()
        legend = _LEGEND.fullmatch(line)
        if legend:
            names[legend[1]] = legend[2]
        elif not columns:
            columns, affinities = _head(line)
        elif len(words) > 1 and words[0] in columns and words[0] in rows:
            problems.append(f"nvidia-smi topo -m lists {words[0]} twice")
        elif len(words) > 1 and words[0] in columns:
            rows[words[0]] = words[1:]
        elif words and _DEVICE.fullmatch(words[0]):
            problems.append(f"nvidia-smi topo -m printed a row that its header does not name: {excerpt(line)}")
    if not columns:
        problems.append(f"nvidia-smi topo -m printed no table: {excerpt(output)}")
        return found
    if len(set(columns)) < len(columns):
        problems.append(f"nvidia-smi topo -m has a device twice in its header: {' '.join(columns)}")
        return found
    unread = [name for name in columns if name not in rows or not _fits(name, columns, rows[name])]
    if unread:
        expected = f"expected the way to each of {len(columns)} devices: run it on the node again"
        problems.append(f"nvidia-smi topo -m: no complete row of {', '.join(unread)}; {expected}")
    unnamed = [name for name in columns if _NUMBERED.fullmatch(name) and name not in names]
    if unnamed:
        problems.append(f"nvidia-smi topo -m: no NIC legend for {', '.join(unnamed)}; they are dropped")
    called = {name: names.get(name, name) for name in columns if name not in unnamed}
    found["gpus"] = sorted(int(match[1]) for match in map(_GPU.fullmatch, columns) if match)
    found["nics"] = [each for name, each in called.items() if not _GPU.fullmatch(name)]
    complete = [name for name in columns if name not in unread and name in called]
    for name in complete:
        ways = dict(zip(columns, rows[name]))
        found["links"][called[name]] = {called[other]: ways[other] for other in called if other != name}
        values = rows[name][len(columns) :]
        # With fewer values than the header names, the missing one is unknown.
        if len(values) == len(affinities):
            _read_affinity(found, name, dict(zip(affinities, values)))
    for one, ways in found["links"].items():
        for other, way in ways.items():
            back = found["links"].get(other, {}).get(one, way)
            if back != way and one < other:
                problems.append(f"nvidia-smi topo -m: {one} to {other} is {way}, and back {back}; expected the same")
    return found


def _head(line: str) -> tuple[list[str], list[str]]:
    """Return the devices and the affinities that a line names, none for a line that is no header."""
    devices, *_ = re.split(r"\s(?:CPU|NUMA|GPU NUMA)\b", line, maxsplit=1)
    words = devices.split()
    if not words or _GPU.fullmatch(words[0]) is None or not all(_DEVICE.fullmatch(word) for word in words):
        return [], []
    return words, re.findall(r"CPU Affinity|NUMA Affinity|GPU NUMA ID", line)


def _fits(name: str, columns: list[str], row: list[str]) -> bool:
    """Return whether a row has a connection for each column, and X in its own."""
    ways = row[: len(columns)]
    return len(ways) == len(columns) and all(
        way == "X" if column == name else _LINK.fullmatch(way) is not None for column, way in zip(columns, ways)
    )


def _read_affinity(found: Topology, name: str, values: dict[str, str]) -> None:
    # GB200 lists several NUMA nodes of memory: `0,3-9,11-17`.
    cpus, numa = values.get("CPU Affinity", ""), values.get("NUMA Affinity", "")
    if _GPU.fullmatch(name) and _NUMBERS.fullmatch(cpus):
        found["cpus"][name] = cpus
        if _NUMBERS.fullmatch(numa):
            found["numa"][name] = numa
