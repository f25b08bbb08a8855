# SPDX-License-Identifier: Apache-2.0
"""Check that a Slurm cluster can run a job before it is submitted; an impossible request would stay pending.

Facts are the records of scontrol from slurm_facts.probe. A cluster that does not answer has no facts; the probe returns
a finding then.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...base.findings import Finding, counted, host_list
from ...slurm.slurm_words import number
from .records import SubmittedPlan, Where

Record = Mapping[str, str]

# Nodes in these states get no job until an administrator acts.
_OUT = ("DOWN", "DRAIN", "FAIL", "MAINT", "FUTURE", "POWERED_DOWN", "UNKNOWN")


def minutes(text: str) -> int | None:
    """Parse a time of Slurm, `[days-]hours:minutes:seconds`, `minutes:seconds` or `minutes`; None for no limit."""
    if text in ("", "UNLIMITED", "INFINITE", "NONE"):
        return None
    days, _, rest = text.rpartition("-")
    parts = [part for part in map(number, rest.split(":")) if part is not None]
    if days or len(parts) == 3:
        hours, mins = [*parts, 0, 0][:2]
        return (number(days) or 0) * 1440 + hours * 60 + mins
    return parts[0] if parts else None


def gres_count(gres: str, kind: str) -> int:
    """Count the devices of one kind in a node's Gres: `gpu:h200:8(S:0-1),npu:2`."""
    found = re.findall(rf"(?:^|,){re.escape(kind)}(?::[^:,()]+)?:([0-9]{{1,9}})", gres)
    return sum(map(int, found))


def _requested_gres(gres: str) -> tuple[str, int]:
    kind, *more = gres.split(":")
    count = number(more[-1]) if more else None
    return kind, 1 if count is None else count


def of_partition(facts: Mapping[str, Any], name: str) -> tuple[Record | None, list[Record]]:
    """Return the partition, or Slurm's default without a name, and its nodes."""
    field, value = ("PartitionName", name) if name else ("Default", "YES")
    partition: Record
    for partition in facts.get("partitions") or ():
        if partition[field] == value:
            title, nodes = partition["PartitionName"], facts.get("nodes") or ()
            return partition, [node for node in nodes if title in str(node["Partitions"]).split(",")]
    return None, []


def time_limit(facts: Mapping[str, Any], partition: str) -> int | None:
    """Return the longest time of a job in the partition, in minutes; None for any."""
    record, _ = of_partition(facts, partition)
    return minutes(record["MaxTime"]) if record else None


def common_gres(facts: Mapping[str, Any], partition: str, most: int | None) -> str:
    """Return `gpu:N` or `npu:N` that every node of the partition has, up to `most`; "" if a node has none."""
    _, nodes = of_partition(facts, partition)
    for kind in ("gpu", "npu"):
        least = min((gres_count(str(node["Gres"]), kind) for node in nodes), default=0)
        if least:
            return f"{kind}:{min(least, most or least)}"
    return ""


def findings(plan: SubmittedPlan, facts: Mapping[str, Any], gres: str, where: Where) -> list[Finding]:
    """Find requests that this cluster can never satisfy."""
    if not facts:
        return []
    name = plan.job.slurm.partition
    partition, nodes = of_partition(facts, name)
    if partition is None:
        names = ", ".join(one["PartitionName"] for one in facts.get("partitions") or ()) or "none"
        found = f"no partition {name!r}" if name else "no default partition"
        return [Finding("job_partition", found, f"a partition of the cluster: {names}", "correct job_partition")]
    result = list(_limits(plan, partition))
    if not any(finding.check == "job_nodes" for finding in result):
        title = partition["PartitionName"]
        result += _nodes(plan, title, nodes, gres)
        unknown = [node["NodeName"] for node in nodes if node["NodeName"] not in where.known]
        if unknown and not plan.settings.get("shared"):
            found = f"nothing; logs cannot be fetched from {host_list(unknown)} of {title}, which the inventory lacks"
            expected = "a folder on a file system that all nodes of the cluster share with the login host"
            action = "set job_folder, or add the nodes to the inventory"
            result.append(Finding("job_folder", found, expected, action))
    if not facts.get("folder_writable", True):
        found = f"{plan.job_dir.rpartition('/jobs/')[0]} is not writable for {where.user or 'the user'}"
        action = "set job_folder to a folder of that user that all nodes share"
        result.append(Finding("folder", found, "a folder where the job can create its own", action, where.submit_host))
    return result


def _limits(plan: SubmittedPlan, partition: Record) -> Iterator[Finding]:
    title, timeout_s = partition["PartitionName"], plan.job.timeout_s
    if partition["State"] != "UP":
        action = "wait until it is up, or choose another with job_partition"
        yield Finding("partition", f"{title} is {partition['State']}", "a partition that accepts jobs", action)
    limits = [number(partition[name]) for name in ("MaxNodes", "TotalNodes")]
    most = min((limit for limit in limits if limit is not None), default=0)
    if plan.nodes > most:
        expected = f"at most {counted(most, 'node')}, as partition {title} allows"
        action = "lower job_nodes, or choose another partition with job_partition"
        yield Finding("job_nodes", counted(plan.nodes, "node"), expected, action)
    limit = minutes(partition["MaxTime"])
    if limit is not None and -(-timeout_s // 60) > limit:
        expected = f"at most {limit * 60} s, as partition {title} allows"
        action = f"set job_timeout: {limit * 60} or less, or choose another partition"
        yield Finding("job_timeout", f"{timeout_s} s", expected, action)


def _nodes(plan: SubmittedPlan, title: str, nodes: Sequence[Record], gres: str) -> Iterator[Finding]:
    ranks = plan.ranks_per_node
    large = [node for node in nodes if (number(node["CPUTot"]) or 0) >= ranks]
    if len(large) < plan.nodes:
        found = f"{counted(ranks, 'rank')} on each node; {_nodes_have(large, title)} as many CPUs"
        expected = f"{counted(plan.nodes, 'such node')}: Slurm gives each rank its own CPU"
        yield Finding("job_ranks_per_node", found, expected, "lower job_ranks_per_node or job_nodes")
    kind, count = _requested_gres(gres) if gres else ("", 0)
    suitable = [node for node in large if not kind or gres_count(str(node["Gres"]), kind) >= count]
    if kind and len(suitable) < plan.nodes:
        action = "correct job_devices or job_gres; to run on the CPU, set job_devices: none and leave job_gres out"
        found = f"{kind}:{count} on each node; {_nodes_have(suitable, title)} as many"
        yield Finding("job_gres", found, counted(plan.nodes, "such node"), action)
    out = [node for node in suitable if any(state in node["State"].upper() for state in _OUT)]
    if len(suitable) >= plan.nodes > len(suitable) - len(out):
        reasons = [f"{node['NodeName']} {node['State']} ({node['Reason'] or 'no reason'})" for node in out[:4]]
        found = f"{len(suitable) - len(out)} of {counted(len(suitable), 'node')} of {title}; {'; '.join(reasons)}"
        action = "repair or resume them (scontrol update nodename=NAME state=resume), or lower job_nodes"
        yield Finding("nodes in service", found, counted(plan.nodes, "node"), action)


def _nodes_have(nodes: Sequence[Record], title: str) -> str:
    return f"{counted(len(nodes), 'node')} of {title} {'has' if len(nodes) == 1 else 'have'}"
