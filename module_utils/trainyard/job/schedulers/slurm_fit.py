# SPDX-License-Identifier: Apache-2.0
"""Whether a Slurm cluster can ever run a job, before it is submitted: a request that nothing satisfies would pend.

Facts are what slurm_facts.probe returned: records of scontrol. A cluster that does not answer has none, which is a
finding of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...findings.findings import Finding, counted, host_list
from .records import SubmittedPlan, Where

Record = Mapping[str, str]

# Nodes in these states take no job until somebody has done something.
_OUT = ("DOWN", "DRAIN", "FAIL", "MAINT", "FUTURE", "POWERED_DOWN", "UNKNOWN")


def minutes(text: str) -> int | None:
    """Read a time of Slurm, `[days-]hours:minutes:seconds`, `minutes:seconds` or `minutes`; None: without a limit."""
    if text in ("", "UNLIMITED", "INFINITE", "NONE"):
        return None
    days, _, rest = text.rpartition("-")
    parts = [int(part) for part in rest.split(":") if part.isdigit()]
    if days:
        hours, mins = [*parts, 0, 0][:2]
        return int(days) * 1440 + hours * 60 + mins
    if len(parts) == 3:
        return parts[0] * 60 + parts[1]
    return parts[0] if parts else None


def gres_count(gres: str, kind: str) -> int:
    """Count the devices of one kind in a node's Gres: `gpu:h200:8(S:0-1),npu:2`."""
    found = re.findall(rf"(?:^|,){re.escape(kind)}(?::[^:,()]+)?:(\d+)", gres)
    return sum(map(int, found))


def _wanted_gres(gres: str) -> tuple[str, int]:
    parts = gres.split(":")
    return (parts[0], int(parts[-1])) if len(parts) > 1 and parts[-1].isdigit() else (parts[0], 1)


def of_partition(facts: Mapping[str, Any], name: str) -> tuple[Record | None, list[Record]]:
    """Return the partition, by default Slurm's own, and its nodes."""
    partitions: Sequence[Record] = facts.get("partitions") or ()
    chosen = next(
        (one for one in partitions if (one["PartitionName"] == name if name else one["Default"] == "YES")), None
    )
    if chosen is None:
        return None, []
    nodes = facts.get("nodes") or ()
    return chosen, [node for node in nodes if chosen["PartitionName"] in str(node["Partitions"]).split(",")]


def common_gres(facts: Mapping[str, Any], partition: str, wanted: int | None) -> str:
    """Return `gpu:N` or `npu:N`: what every node of the partition has, at most `wanted`; "" where some have none."""
    _, nodes = of_partition(facts, partition)
    for kind in ("gpu", "npu"):
        least = min((gres_count(str(node["Gres"]), kind) for node in nodes), default=0)
        if least:
            return f"{kind}:{min(least, wanted or least)}"
    return ""


def findings(
    plan: SubmittedPlan, facts: Mapping[str, Any], gres: str, where: Where, known: Iterable[str]
) -> list[Finding]:
    """Find what this cluster can never give. `known` are the hosts of the inventory."""
    if not facts:
        return []
    found: list[Finding] = []

    def wrong(check: str, what: str, expected: str, action: str, host: str = "") -> None:
        found.append(Finding(check, what, expected, action, host=host))

    name = plan.job.slurm.partition
    partition, nodes = of_partition(facts, name)
    if partition is None:
        there = ", ".join(one["PartitionName"] for one in facts.get("partitions") or ()) or "none"
        wrong(
            check="job_partition",
            what=f"no partition {name!r}" if name else "no default partition",
            expected=f"one of the cluster's: {there}",
            action="correct job_partition",
        )
        return found
    title = partition["PartitionName"]
    if partition["State"] != "UP":
        wrong(
            check="partition",
            what=f"{title} is {partition['State']}",
            expected="a partition that takes jobs",
            action="wait until it is up, or choose another with job_partition",
        )
    most = min((int(n) for n in (partition["MaxNodes"], partition["TotalNodes"]) if n.isdigit()), default=0)
    if plan.nodes > most:
        wrong(
            check="job_nodes",
            what=f"{counted(plan.nodes, 'node')} asked for, {most} in partition {title}",
            expected="at most as many nodes as the partition gives to a job",
            action="lower job_nodes, or choose another partition with job_partition",
        )
        return found
    limit = minutes(partition["MaxTime"])
    if limit is not None and -(-plan.job.timeout_s // 60) > limit:
        wrong(
            check="job_timeout",
            what=f"{plan.job.timeout_s} s, partition {title} allows {limit * 60} s",
            expected="a job that may run as long as it asks for",
            action=f"set job_timeout: {limit * 60} or less, or choose another partition",
        )
    large = [node for node in nodes if int(node["CPUTot"] or 0) >= plan.ranks_per_node]
    if len(large) < plan.nodes:
        wrong(
            check="job_ranks_per_node",
            what=(
                f"{counted(plan.ranks_per_node, 'process', 'processes')} on each node; "
                f"{counted(len(large), 'node')} of {title} {'has' if len(large) == 1 else 'have'} as many CPUs"
            ),
            expected=f"{counted(plan.nodes, 'such node')}: Slurm gives each process a CPU of its own",
            action="lower job_ranks_per_node or job_nodes",
        )
    kind, count = _wanted_gres(gres) if gres else ("", 0)
    with_devices = [node for node in large if not kind or gres_count(str(node["Gres"]), kind) >= count]
    if kind and len(with_devices) < plan.nodes:
        wrong(
            check="job_gres",
            what=(
                f"{kind}:{count} on each node; {counted(len(with_devices), 'node')} of {title} "
                f"{'has' if len(with_devices) == 1 else 'have'} as many"
            ),
            expected=counted(plan.nodes, "such node"),
            action="correct job_devices or job_gres, or set job_devices: none to run on the CPU",
        )
    out = [node for node in with_devices if any(state in node["State"].upper() for state in _OUT)]
    if len(with_devices) >= plan.nodes > len(with_devices) - len(out):
        reasons = "; ".join(
            dict.fromkeys(f"{node['NodeName']} {node['State']} ({node['Reason'] or 'no reason'})" for node in out[:4])
        )
        wrong(
            check="nodes",
            what=(
                f"{len(with_devices) - len(out)} of {counted(len(with_devices), 'node')} of {title} "
                f"{'takes' if len(with_devices) == 1 else 'take'} jobs: {reasons}"
            ),
            expected=f"{counted(plan.nodes, 'node')} in service",
            action="repair or resume them (scontrol update nodename=NAME state=resume), or lower job_nodes",
        )
    if plan.job.launcher == "mpirun" and not any(str(word).startswith("pmix") for word in facts.get("mpi") or ()):
        wrong(
            check="mpi",
            what="srun without PMIx (srun --mpi=list)",
            expected="Slurm with its PMIx plugin, by which Open MPI's ranks find each other",
            action="install it (Debian: libpmix2), or use another job_launcher",
        )
    if not facts.get("folder_writable", True):
        wrong(
            check="folder",
            what=f"{plan.job_dir.rpartition('/jobs/')[0]} cannot be written by {where.user or 'the user'}",
            expected="a folder in which the job can make its own",
            action="set job_folder to a folder of that user that all nodes share",
            host=where.submit_host,
        )
    strangers = [node["NodeName"] for node in nodes if node["NodeName"] not in set(known)]
    if strangers and not plan.settings.get("shared"):
        wrong(
            check="job_folder",
            what=(
                f"nothing; {host_list(strangers)} of {title} are not in the inventory, so nobody could bring their logs"
            ),
            expected="a folder on a file system that all nodes of the cluster share with the login host",
            action="set job_folder, or add the nodes to the inventory",
        )
    return found
