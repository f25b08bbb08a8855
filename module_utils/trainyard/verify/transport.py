# SPDX-License-Identifier: Apache-2.0
"""Find which devices carried a benchmark's bytes, from RDMA counters and NCCL's lines (NCCL_DEBUG=INFO).

Pure. Traffic of a node is {"mlx5_0:1": {"sent": bytes, "received": bytes}}, None for a counter that cannot be read.
Forms of NCCL's lines: its versions 2.7 to 2.28, also with a network plugin (IBext_v8, Libfabric, AWS Libfabric).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..base.findings import host_list
from ..hardware.traffic import Traffic, moved
from ..nvidia.nccl_lines import Transport, read_nccl_lines

State = tuple[str, list[str], str]


def _by_counters(
    traffic: Mapping[str, tuple[Traffic, Traffic]], least_bytes: int
) -> tuple[dict[str, dict[str, int]], list[str]]:
    """Return the ports that carried the run on each host, none where the bytes went elsewhere, and hosts unread."""
    carried: dict[str, dict[str, int]] = {}
    unread = []
    for host, pair in traffic.items():
        counts = moved(*pair)
        known = {port: count for port, count in counts.items() if count is not None}
        total = sum(known.values())
        enough = total >= least_bytes / 2
        if not enough and len(known) < len(counts):
            unread.append(host)
        # Less than a hundredth belongs to the subnet manager or another program.
        carried[host] = {port: count for port, count in known.items() if enough and count * 100 >= total}
    return carried, unread


def check_transport(
    hosts: Sequence[str],
    backend: str,
    least_bytes: int,
    active: Mapping[str, Sequence[str]] | None,
    traffic: Mapping[str, tuple[Traffic, Traffic]],
    lines: Iterable[str],
) -> dict[str, Any] | None:
    """Return which devices carried the bytes: {state, devices, reason}; None where nothing leaves the node.

    `active` are the active RDMA ports of each host, None if they were not read; `traffic` their counters before and
    after the run; `least_bytes` about what every node sends or receives at least.
    """
    if len(hosts) < 2 or backend == "hccl":
        # The NICs of NPUs are no devices of the kernel.
        return None
    nccl = read_nccl_lines(lines)
    by_counters, unread = _by_counters(traffic, least_bytes)
    state, devices, reason = _state(hosts, backend, active, nccl, by_counters, unread)
    if state == "pass" and active:
        idle = {
            host: [port for port in active.get(host, ()) if port not in ports]
            for host, ports in by_counters.items()
            if ports
        }
        quiet = [host for host, ports in idle.items() if ports]
        if quiet:
            reason += f"; idle although active: {', '.join(idle[quiet[0]])} ({host_list(quiet)})"
    return {"state": state, "devices": devices, "reason": reason}


def _state(
    hosts: Sequence[str],
    backend: str,
    active: Mapping[str, Sequence[str]] | None,
    nccl: Transport,
    by_counters: Mapping[str, Mapping[str, int]],
    unread: Sequence[str],
) -> State:
    with_rdma = [host for host in hosts if (active or {}).get(host)]
    sockets = sorted(nccl.devices.get("Socket", ())) or ["TCP"]
    if backend == "gloo":
        return "pass", ["TCP"], "gloo speaks TCP, whatever RDMA there is"
    if nccl.tcp:
        if with_rdma:
            ports = f"active on {host_list(with_rdma)} ({_ports(active, with_rdma[0])})"
            return "fail", sockets, f"NCCL sent over TCP ({', '.join(sockets)}) although RDMA ports were {ports}"
        if active is None:
            return "unknown", sockets, "NCCL sent over TCP, and RDMA ports were not read"
        return "pass", sockets, "NCCL sent over TCP: no node has an active RDMA port"
    if by_counters:
        dry = [host for host in by_counters if not by_counters[host] and host not in unread and host in with_rdma]
        carried = sorted({port for ports in by_counters.values() for port in ports})
        if dry:
            ports = f"the active RDMA ports on {host_list(dry)} ({_ports(active, dry[0])})"
            reason = f"the counters of {ports} did not move by the bytes of the run: it passed over TCP there"
            return "fail", carried or ["TCP"], reason
        if carried and not unread:
            gdr = ", by GPUDirect RDMA" if nccl.gdrdma else ""
            return "pass", carried, f"RDMA counters grew by the bytes of the run{gdr}"
    if nccl.other:
        gdr = ", by GPUDirect RDMA" if nccl.gdrdma else ", through the nodes' memory (no GPUDirect RDMA)"
        named = sorted({name for net, names in nccl.devices.items() if net != "Socket" for name in names})
        reason = f"NCCL says so (NET/{', NET/'.join(nccl.other)}{gdr if nccl.channels else ''})"
        return "pass", named or nccl.other, reason
    if active is not None and not with_rdma:
        return "pass", ["TCP"], "no node has an active RDMA port"
    why = "RDMA counters could not be read" if unread else "neither RDMA counters nor NCCL's lines were there"
    advice = "run with NCCL_DEBUG=INFO" if backend == "nccl" else "read the counters around the run (rdma_traffic)"
    return "unknown", [], f"{why} to say which devices carried the bytes: {advice}"


def _ports(active: Mapping[str, Sequence[str]] | None, host: str) -> str:
    return ", ".join(list((active or {})[host])[:4])
