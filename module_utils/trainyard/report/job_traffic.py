# SPDX-License-Identifier: Apache-2.0
"""How a job's bytes went between its ranks, in words: what NCCL chose, and what the nodes' ports counted.

Counters are of ports, not of jobs: what others sent meanwhile is in them, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..base.findings import host_list
from ..hardware.traffic import is_rdma, size

Data = Mapping[str, Any]

_MAX_DEVICES, _MAX_PORTS = 8, 8
_INSIDE = {"P2P": "GPU to GPU (P2P)", "SHM": "the node's memory (SHM)"}


def nccl_text(summary: Data) -> str:
    """Say over what NCCL went, "" where it reported nothing."""
    nccl = summary.get("nccl")
    if not nccl:
        return ""
    parts = []
    # Before channels are made it has only reported what it would use.
    for net in nccl["channels"] or nccl["networks"]:
        devices = nccl["devices"].get(net, [])
        shown = [*devices[:_MAX_DEVICES], *(["..."] if len(devices) > _MAX_DEVICES else [])]
        named = f" ({', '.join(shown)})" if shown else ""
        parts.append(f"{'TCP' if net == 'Socket' else net}{named}")
    if nccl["gdrdma"]:
        parts[-1] += ", by GPUDirect RDMA"
    between = f"between nodes over {' and '.join(parts)}" if parts else ""
    inside = " and ".join(_INSIDE[way] for way in nccl["inside"])
    return "; ".join(part for part in (between, f"inside nodes over {inside}" if inside else "") if part)


def ports_text(summary: Data) -> str:
    """Say what the ports of all nodes counted while the job ran, "" if none was read."""
    totals: dict[str, dict[str, int]] = {}
    silent = []
    for node in summary["nodes"]:
        for port, counts in (node.get("carried") or {}).items():
            if None in counts.values():
                silent.append(port)
            total = totals.setdefault(port, {"sent": 0, "received": 0})
            for name in total:
                total[name] += counts.get(name) or 0
    busiest = sorted(totals, key=lambda port: (-sum(totals[port].values()), port))
    words = [
        f"{port} sent {size(totals[port]['sent'])}, received {size(totals[port]['received'])}"
        + (" (not all nodes could be read)" if port in silent else "")
        for port in busiest[:_MAX_PORTS]
    ]
    return "; ".join([*words, *(["..."] if len(busiest) > _MAX_PORTS else [])])


def warning(summary: Data) -> str:
    """Say that NCCL went over TCP on nodes that have RDMA ports, "" where that is not so."""
    nccl = summary.get("nccl")
    if not nccl or "Socket" not in (nccl["channels"] or nccl["networks"]):
        return ""
    hosts = [node["host"] for node in summary["nodes"] if any(map(is_rdma, node.get("carried") or ()))]
    if not hosts:
        return ""
    return (
        f"NCCL sent over TCP although {host_list(hosts)} have RDMA ports: see their state (ibstat), NCCL_IB_DISABLE "
        "and NCCL_IB_HCA, and the verification (playbooks/verify.yml)"
    )


def lines(summary: Data) -> list[str]:
    """Return what the text at the end of a job says: nothing where NCCL reported nothing and there is no RDMA."""
    nccl, ports = nccl_text(summary), ports_text(summary)
    rdma = any(is_rdma(port) for node in summary["nodes"] for port in node.get("carried") or ())
    texts = [f"NCCL went {nccl}" if nccl else "", f"ports of all nodes: {ports}" if ports and (nccl or rdma) else ""]
    return [text for text in (*texts, warning(summary)) if text]
