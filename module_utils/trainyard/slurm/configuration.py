# SPDX-License-Identifier: Apache-2.0
"""What stands in slurm.conf, gres.conf and cgroup.conf of a small cluster, from what its nodes say of themselves.

All nodes have the same files: Slurm compares them by a hash. A node is described by the line that its own `slurmd -C`
prints, and by the device files of its accelerators.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..findings.findings import Finding
from .change import SIGN, judge_nodes

# The name of a generic resource by vendor, and the device file of device N.
GRES = {"nvidia": ("gpu", "/dev/nvidia{index}"), "ascend": ("npu", "/dev/davinci{index}")}
# What slurmd -C says of the hardware. Boards only where there are several.
_HARDWARE = ("CPUs", "SocketsPerBoard", "CoresPerSocket", "ThreadsPerCore", "RealMemory")

# proctrack and task plugins: cgroup keeps a job to its cores, memory and devices, and finds all its processes. Where
# slurmd may not write cgroups it can do neither; there a job is found by the tree of its processes.
CONFINEMENT = {
    "cgroup": ("proctrack/cgroup", "task/cgroup,task/affinity"),
    "none": ("proctrack/linuxproc", "task/none"),
}


@dataclass(frozen=True)
class ClusterSettings:
    """What the role lets its user choose."""

    name: str
    controller: str
    controller_address: str
    confinement: str = "cgroup"
    partition: str = "train"
    node_timeout_s: int = 60
    requeue_wait_s: int = 120
    health_interval_s: int = 300
    health_program: str = ""
    epilog: str = ""
    # Of each node's memory, what is left to the system, in MiB.
    memory_reserve_mib: int = 1024


def nodes_of(hosts: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the nodes that content() and judge_change() take, from what the role has registered on each host.

    What a host has not been asked for is None, a slurm.conf that it does not have is empty.
    """
    nodes = []
    for host in hosts:
        nodes.append(
            {
                "host": host["name"],
                "address": host.get("ansible_host") or host["name"],
                "hostname": (host.get("ansible_facts") or {}).get("hostname"),
                "conf": b64decode((host.get("__slurm_conf") or {}).get("content") or "").decode(),
                "cgroups": (host.get("__slurm_cgroups") or {}).get("stdout"),
                "slurmd": (host.get("__slurm_described") or {}).get("stdout"),
                "version": (host.get("__slurm_version") or {}).get("stdout"),
                "accelerators": (host.get("__slurm_accelerators") or {}).get("accelerators"),
            }
        )
    return nodes


def hardware(line: str) -> dict[str, str]:
    """Read the first line of `slurmd -C`. Raises ValueError when it says too little."""
    found = dict(re.findall(r"(\w+)=(\S+)", line.splitlines()[0] if line.strip() else ""))
    missing = [name for name in _HARDWARE if not str(found.get(name, "")).isdigit()]
    if missing:
        raise ValueError(f"slurmd -C does not say {', '.join(missing)}: {line.strip()[:200]!r}")
    return {name: found[name] for name in _HARDWARE}


def gres_of(accelerators: Mapping[str, Any]) -> tuple[str, list[int]]:
    """Return the generic resource of a node and the numbers of its devices; "" and none where there are none."""
    vendor = str(accelerators.get("vendor") or "none")
    indices = sorted(int(device["index"]) for device in accelerators.get("devices") or ())
    return (GRES[vendor][0], indices) if vendor in GRES and indices else ("", [])


def _ranges(numbers: Sequence[int]) -> str:
    """Write device numbers as Slurm does: `0-3,6`."""
    parts: list[str] = []
    start = previous = None
    for number in [*numbers, None]:
        if previous is not None and number == previous + 1:
            previous = number
            continue
        if start is not None:
            parts.append(str(start) if start == previous else f"{start}-{previous}")
        start = previous = number
    return ",".join(parts)


def content(
    settings: ClusterSettings, nodes: Sequence[Mapping[str, Any]]
) -> tuple[dict[str, Mapping[str, Any]], list[Finding]]:
    """Return what stands in the files (templates/slurm/) by their names, and what is wrong with the nodes.

    A node is {host, address, hostname, slurmd (output of slurmd -C), version (of slurmd -V), conf (its slurm.conf of
    now), accelerators}.
    """
    described: list[dict[str, Any]] = []
    findings: list[Finding] = []
    for node in nodes:
        try:
            described.append(_described(settings, node))
        except ValueError as error:
            findings.append(
                Finding(
                    "slurmd",
                    str(error),
                    "a line with sockets, cores and memory",
                    "run slurmd -C there",
                    host=node["host"],
                )
            )
    gres = {str(node["host"]): f"{node['gres']}:{node['devices']}" for node in described if node["gres"]}
    findings += judge_nodes(settings.controller, nodes, gres)
    proctrack, task_plugin = CONFINEMENT[settings.confinement]
    shares = [int(node["hardware"]["RealMemory"]) // int(node["hardware"]["CPUs"]) for node in described]
    of_cluster = {
        "sign": SIGN,
        "settings": settings,
        "nodes": described,
        "proctrack": proctrack,
        "task_plugin": task_plugin,
        # Of each CPU on the node that has least, in MiB.
        "memory_per_cpu": min(shares, default=0),
        "gres_types": list(dict.fromkeys(node["gres"] for node in described if node["gres"])),
    }
    names = ("slurm.conf", "gres.conf", *(["cgroup.conf"] if settings.confinement == "cgroup" else []))
    return dict.fromkeys(names, of_cluster), findings


def _described(settings: ClusterSettings, node: Mapping[str, Any]) -> dict[str, Any]:
    """Return a node as the files have it. Raises ValueError when slurmd says too little of it."""
    found = hardware(str(node.get("slurmd") or ""))
    memory = int(found["RealMemory"])
    found["RealMemory"] = str(max(memory // 2, memory - settings.memory_reserve_mib))
    gres, indices = gres_of(node.get("accelerators") or {})
    device_file = GRES[str(node["accelerators"]["vendor"])][1] if gres else ""
    return {
        **{key: node[key] for key in ("host", "hostname", "address")},
        "hardware": found,
        "gres": gres,
        "devices": len(indices),
        "file": device_file.replace("{index}", f"[{_ranges(indices)}]"),
    }
