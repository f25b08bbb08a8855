# SPDX-License-Identifier: Apache-2.0
"""slurm.conf, gres.conf and cgroup.conf of a small cluster, from what its nodes say of themselves.

All nodes have the same files: Slurm compares them by a hash. A node is described by the line that its own `slurmd -C`
prints, and by the device files of its accelerators.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..record.findings import Finding
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


def _sharing(confinement: str, shares: Sequence[int]) -> list[str]:
    """Return what jobs on one node share; `shares` is the memory of each node for one CPU, in MiB.

    A job is held to memory only where Slurm hands memory out. One that asks for none then has that of its cores, as all
    of a node's would leave none to the next job.
    """
    if confinement == "none":
        return ["SelectTypeParameters=CR_Core"]
    return ["SelectTypeParameters=CR_Core_Memory", *([f"DefMemPerCPU={min(shares)}"] if shares else [])]


def render(settings: ClusterSettings, nodes: Sequence[Mapping[str, Any]]) -> tuple[dict[str, str], list[Finding]]:
    """Return the files by name, and what is wrong with the nodes.

    A node is {host, address, hostname, slurmd (output of slurmd -C), version (of slurmd -V), conf (its slurm.conf of
    now), accelerators}.
    """
    findings: list[Finding] = []
    node_lines, gres_lines, gres_types = [], [], []
    gres: dict[str, str] = {}
    shares: list[int] = []
    for node in nodes:
        try:
            found = hardware(str(node.get("slurmd") or ""))
        except ValueError as error:
            findings.append(
                Finding(
                    host=node["host"],
                    check="slurmd",
                    found=str(error),
                    expected="a line with sockets, cores and memory",
                    action="run slurmd -C there",
                )
            )
            continue
        memory = int(found["RealMemory"])
        found["RealMemory"] = str(max(memory // 2, memory - settings.memory_reserve_mib))
        shares.append(int(found["RealMemory"]) // int(found["CPUs"]))
        line = f"NodeName={node['host']} NodeHostname={node['hostname']} NodeAddr={node['address']} "
        line += " ".join(f"{name}={value}" for name, value in found.items())
        kind, indices = gres_of(node.get("accelerators") or {})
        if kind:
            gres[str(node["host"])] = f"{kind}:{len(indices)}"
            line += f" Gres={kind}:{len(indices)}"
            file = GRES[str(node["accelerators"]["vendor"])][1].replace("{index}", f"[{_ranges(indices)}]")
            gres_lines.append(f"NodeName={node['host']} Name={kind} File={file}")
            gres_types.append(kind)
        node_lines.append(line + " State=UNKNOWN")
    findings += judge_nodes(settings.controller, nodes, gres)
    proctrack, task = CONFINEMENT[settings.confinement]
    lines = [
        f"{SIGN} from what the nodes are; the same on every node.",
        f"ClusterName={settings.name}",
        f"SlurmctldHost={settings.controller}({settings.controller_address})",
        "AuthType=auth/munge",
        # So long a step may take to start, and a requeued job waits: the credentials of its first start end by then.
        f"AuthInfo=cred_expire={settings.requeue_wait_s}",
        "SlurmUser=slurm",
        "StateSaveLocation=/var/lib/slurm/slurmctld",
        "SlurmdSpoolDir=/var/lib/slurm/slurmd",
        "SlurmctldLogFile=/var/log/slurm/slurmctld.log",
        "SlurmdLogFile=/var/log/slurm/slurmd.log",
        f"ProctrackType={proctrack}",
        f"TaskPlugin={task}",
        # Jobs share a node by its cores.
        "SelectType=select/cons_tres",
        *_sharing(settings.confinement, shares),
        "SchedulerType=sched/backfill",
        "AccountingStorageType=accounting_storage/none",
        # Without accounting nobody else knows how a job ended.
        "MinJobAge=3600",
        f"SlurmdTimeout={settings.node_timeout_s}",
        # A node that was lost comes back by itself; one that was drained stays so.
        "ReturnToService=1",
        "RebootProgram=/sbin/reboot",
    ]
    if settings.health_program:
        lines += [
            f"HealthCheckProgram={settings.health_program}",
            f"HealthCheckInterval={settings.health_interval_s}",
            "HealthCheckNodeState=ANY",
        ]
    if settings.epilog:
        lines.append(f"Epilog={settings.epilog}")
    if gres_types:
        lines.append("GresTypes=" + ",".join(dict.fromkeys(gres_types)))
    names = ",".join(str(node["host"]) for node in nodes)
    lines += [*node_lines, f"PartitionName={settings.partition} Nodes={names} Default=YES MaxTime=INFINITE State=UP"]
    files = {"slurm.conf": "\n".join(lines) + "\n"}
    files["gres.conf"] = "\n".join([f"{SIGN}.", *gres_lines]) + "\n"
    if settings.confinement == "cgroup":
        files["cgroup.conf"] = (
            f"{SIGN}.\nConstrainCores=yes\nConstrainRAMSpace=yes\nConstrainDevices={'yes' if gres_types else 'no'}\n"
        )
    return files, findings
