# SPDX-License-Identifier: Apache-2.0
"""Compute the content of slurm.conf, gres.conf and cgroup.conf, the same for all nodes, from the facts of the nodes."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..findings.findings import Finding
from ..findings.spans import ranges
from .change import SIGN, node_findings

# Name of the generic resource and path of a device file, by vendor.
GRES = {"nvidia": ("gpu", "/dev/nvidia{index}"), "ascend": ("npu", "/dev/davinci{index}")}
# Required fields of slurmd -C.
_HARDWARE = ("CPUs", "SocketsPerBoard", "CoresPerSocket", "ThreadsPerCore", "RealMemory")

# The proctrack and task plugins. With cgroup, a job is confined to its cores, memory and devices, and all its processes
# are found. Without writable cgroups, Slurm finds the process tree only.
CONFINEMENT = {
    "cgroup": ("proctrack/cgroup", "task/cgroup,task/affinity"),
    "none": ("proctrack/linuxproc", "task/none"),
}


@dataclass(frozen=True)
class ClusterSettings:
    """The settings of the role."""

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
    # Memory of each node that is reserved for the system, in MiB.
    memory_reserve_mib: int = 1024


def nodes_of(hosts: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the nodes for content() and change_findings() from the results that the role registered on each host."""
    return [
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
        for host in hosts
    ]


def hardware(line: str) -> dict[str, str]:
    """Parse the first line of `slurmd -C`. Raises ValueError for missing fields."""
    found = dict(re.findall(r"(\w+)=(\S+)", line.splitlines()[0] if line.strip() else ""))
    missing = [name for name in _HARDWARE if not str(found.get(name, "")).isdigit()]
    if missing:
        raise ValueError(f"slurmd -C does not print {', '.join(missing)}: {line.strip()[:200]!r}")
    return {name: found[name] for name in _HARDWARE}


def gres_of(accelerators: Mapping[str, Any]) -> tuple[str, list[int]]:
    """Return the generic resource of a node and its device numbers, or "" and []."""
    vendor = str(accelerators.get("vendor") or "none")
    indices = sorted(int(device["index"]) for device in accelerators.get("devices") or ())
    return (GRES[vendor][0], indices) if vendor in GRES and indices else ("", [])


def content(
    settings: ClusterSettings, nodes: Sequence[Mapping[str, Any]]
) -> tuple[dict[str, Mapping[str, Any]], list[Finding]]:
    """Return the context of each file's template (templates/slurm/) by name, and the findings of the nodes.

    A node is {host, address, hostname, slurmd (output of slurmd -C), version (of slurmd -V), conf (its present
    slurm.conf), accelerators}.
    """
    described: list[dict[str, Any]] = []
    findings: list[Finding] = []
    for node in nodes:
        try:
            described.append(_described(settings, node))
        except ValueError as error:
            expected = "a line with sockets, cores and memory"
            findings.append(Finding("slurmd", str(error), expected, "run slurmd -C there", host=node["host"]))
    gres = {str(node["host"]): f"{node['gres']}:{node['devices']}" for node in described if node["gres"]}
    findings += node_findings(settings.controller, nodes, gres)
    proctrack, task_plugin = CONFINEMENT[settings.confinement]
    shares = [int(node["hardware"]["RealMemory"]) // int(node["hardware"]["CPUs"]) for node in described]
    of_cluster = {
        "sign": SIGN,
        "settings": settings,
        "nodes": described,
        "proctrack": proctrack,
        "task_plugin": task_plugin,
        # Memory for each CPU of the node with the least, in MiB.
        "memory_per_cpu": min(shares, default=0),
        "gres_types": list(dict.fromkeys(node["gres"] for node in described if node["gres"])),
    }
    names = ("slurm.conf", "gres.conf", *(["cgroup.conf"] if settings.confinement == "cgroup" else []))
    return dict.fromkeys(names, of_cluster), findings


def _described(settings: ClusterSettings, node: Mapping[str, Any]) -> dict[str, Any]:
    """Return a node as the templates need it. Raises ValueError for missing fields of slurmd."""
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
        "file": device_file.replace("{index}", f"[{ranges(indices)}]"),
    }
