# SPDX-License-Identifier: Apache-2.0
"""Which devices carried a benchmark's bytes: RDMA counters before and after it, and what NCCL says (NCCL_DEBUG=INFO).

Pure. Traffic of a node is {"mlx5_0:1": {"sent": bytes, "received": bytes}}, None for a counter that cannot be read.
Forms of NCCL's lines: its versions 2.7 to 2.28, also with a network plugin (IBext_v8, Libfabric, AWS Libfabric).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..findings.findings import host_list

Traffic = Mapping[str, Mapping[str, "int | None"]]
State = tuple[str, list[str], str]

_USING = re.compile(r"NCCL INFO NET/(?P<net>[\w -]+?)\s*: Using (?P<devices>\[\d+\].*)")
_DEVICE = re.compile(r"\[(?P<index>\d+)\](?P<name>[^\s;:\[\]]+:?\d*)")
# `Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA`, older `0[1b000] -> 8[1b000] [receive] via NET/Socket/0`.
_VIA = re.compile(r"\bvia NET/(?P<net>[\w -]+?)/(?P<index>\d+)(?P<gdr>/GDRDMA)?\b")
_NETWORK = re.compile(r"NCCL INFO (?:comm \S+ .*\b)?Using network (?P<net>[\w-]+(?: [\w-]+)*)")
_HOST = re.compile(r"(?:^|\] )(?P<host>[\w.-]+):\d+:\d+ ")


@dataclass
class Said:
    """What NCCL's lines say: networks that were chosen, channels and devices per network, GPUDirect RDMA."""

    networks: set[str] = field(default_factory=set)
    channels: dict[str, int] = field(default_factory=dict)
    devices: dict[str, set[str]] = field(default_factory=dict)
    gdrdma: int = 0

    @property
    def tcp(self) -> bool:
        """Whether bytes went through sockets."""
        return self.channels.get("Socket", 0) > 0 or (not self.channels and self.networks == {"Socket"})

    @property
    def other(self) -> list[str]:
        """Return the networks other than sockets, such as IB."""
        return sorted({*self.channels, *(self.networks if not self.channels else ())} - {"Socket"})


def read_nccl_lines(lines: Iterable[str]) -> Said:
    """Read what NCCL said on all ranks."""
    said = Said()
    names: dict[tuple[str, str, int], str] = {}
    used: set[tuple[str, str, int]] = set()
    for line in lines:
        found = _HOST.search(line)
        host = found["host"] if found else ""
        using = _USING.search(line)
        if using:
            for device in _DEVICE.finditer(using["devices"].partition(";")[0]):
                name = device["name"].partition(":")[0] if using["net"] == "Socket" else device["name"]
                names[host, using["net"], int(device["index"])] = name
        network = _NETWORK.search(line)
        if network:
            said.networks.add(network["net"])
        via = _VIA.search(line)
        if via:
            said.channels[via["net"]] = said.channels.get(via["net"], 0) + 1
            said.gdrdma += via["gdr"] is not None
            used.add((host, via["net"], int(via["index"])))
    for host, net, index in used:
        # A plugin names its devices under its own name, and its channels under NCCL's.
        name = names.get((host, net, index)) or next(
            (name for (one, other, number), name in names.items() if one == host and number == index
             and other != "Socket" and net != "Socket"), f"{net} device {index}",
        )  # fmt: skip
        said.devices.setdefault(net, set()).add(name)
    return said


def moved(before: Traffic, after: Traffic) -> dict[str, int | None]:
    """Return the bytes that each port sent or received, whichever is more; None where a counter tells nothing.

    A counter that went back was reset, and one that stands at the most that 32 bits hold has stopped counting.
    """
    full = (2**32 - 1) * 4
    result: dict[str, int | None] = {}
    for port in after:
        deltas = []
        for name in ("sent", "received"):
            first, last = (before.get(port) or {}).get(name), after[port].get(name)
            stuck = last == full or (last is not None and first is not None and last < first)
            deltas.append(None if first is None or last is None or stuck else last - first)
        known = [delta for delta in deltas if delta is not None]
        result[port] = max(known) if known else None
    return result


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
        # What is less than a hundredth is the subnet manager's, or another program's.
        carried[host] = {port: count for port, count in known.items() if enough and count * 100 >= total}
    return carried, unread


def judge(
    hosts: Sequence[str],
    backend: str,
    least_bytes: int,
    active: Mapping[str, Sequence[str]] | None,
    traffic: Mapping[str, tuple[Traffic, Traffic]],
    lines: Iterable[str],
) -> dict[str, Any] | None:
    """Say which devices carried the bytes: {state, devices, reason}; None where nothing leaves the node.

    `active` are the active RDMA ports of each host, None where nobody looked; `traffic` their counters before and after
    the run; `least_bytes` about what every node sends or receives at least.
    """
    if len(hosts) < 2 or backend == "hccl":
        # The NICs of NPUs are no devices of the kernel.
        return None
    said = read_nccl_lines(lines)
    by_counters, unread = _by_counters(traffic, least_bytes)
    carried = sorted({port for ports in by_counters.values() for port in ports})
    state, devices, reason = _state(hosts, backend, active, said, by_counters, unread)
    if state == "pass" and carried and active:
        idle = {
            host: [port for port in active.get(host, ()) if port not in by_counters.get(host, {})]
            for host in by_counters
            if by_counters[host]
        }
        quiet = [host for host, ports in idle.items() if ports]
        if quiet:
            reason += f"; idle although active: {', '.join(idle[quiet[0]])} ({host_list(quiet)})"
    return {"state": state, "devices": devices, "reason": reason}


def _state(
    hosts: Sequence[str],
    backend: str,
    active: Mapping[str, Sequence[str]] | None,
    said: Said,
    by_counters: Mapping[str, Mapping[str, int]],
    unread: Sequence[str],
) -> State:
    with_rdma = [host for host in hosts if (active or {}).get(host)]
    sockets = sorted(said.devices.get("Socket", ())) or ["TCP"]
    told = sorted({name for net, names in said.devices.items() if net != "Socket" for name in names})
    if backend == "gloo":
        return "pass", ["TCP"], "gloo speaks TCP, whatever RDMA there is"
    if said.tcp:
        if with_rdma:
            ports = ", ".join(list((active or {})[with_rdma[0]])[:4])
            return (
                "fail",
                sockets,
                f"NCCL sent over TCP ({', '.join(sockets)}) although RDMA ports were active on {host_list(with_rdma)} "
                f"({ports})",
            )
        if active is None:
            return "unknown", sockets, "NCCL sent over TCP, and nobody looked whether there are RDMA ports"
        return "pass", sockets, "NCCL sent over TCP: no node has an active RDMA port"
    if by_counters:
        dry = [host for host in by_counters if not by_counters[host] and host not in unread and host in with_rdma]
        carried = sorted({port for ports in by_counters.values() for port in ports})
        if dry:
            ports = ", ".join(list((active or {})[dry[0]])[:4])
            return (
                "fail",
                carried or ["TCP"],
                f"the counters of the active RDMA ports on {host_list(dry)} ({ports}) did not move by the bytes of the "
                "run: it passed over TCP there",
            )
        if carried and not unread:
            gdr = ", by GPUDirect RDMA" if said.gdrdma else ""
            return "pass", carried, f"RDMA counters grew by the bytes of the run{gdr}"
    if said.other:
        gdr = ", by GPUDirect RDMA" if said.gdrdma else ", through the nodes' memory (no GPUDirect RDMA)"
        return (
            "pass",
            told or said.other,
            f"NCCL says so (NET/{', NET/'.join(said.other)}{gdr if said.channels else ''})",
        )
    if active is not None and not with_rdma:
        return "pass", ["TCP"], "no node has an active RDMA port"
    looked = "RDMA counters could not be read" if unread else "neither RDMA counters nor NCCL's lines were there"
    advice = "run with NCCL_DEBUG=INFO" if backend == "nccl" else "read the counters around the run (rdma_traffic)"
    return "unknown", [], f"{looked} to say which devices carried the bytes: {advice}"
