# SPDX-License-Identifier: Apache-2.0
"""Parse the lines in which NCCL reports its networks (NCCL_DEBUG=INFO).

Forms of its lines: NCCL 2.7 to 2.28, also with a network plugin (IBext_v8, Libfabric, AWS Libfabric).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

_USING = re.compile(r"NCCL INFO NET/(?P<net>[\w -]+?)\s*: Using (?P<devices>\[\d+\].*)")
_DEVICE = re.compile(r"\[(?P<index>\d+)\](?P<name>[^\s;:\[\]]+:?\d*)")
# `Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA`, older `0[1b000] -> 8[1b000] [receive] via NET/Socket/0`.
_VIA = re.compile(r"\bvia NET/(?P<net>[\w -]+?)/(?P<index>\d+)(?P<gdr>/GDRDMA)?\b")
# Inside a node: `via P2P/CUMEM`, `via P2P/IPC/read`, `via SHM/direct/direct`.
_INSIDE = re.compile(r"NCCL INFO Channel \S+ : .* via (?P<way>P2P|SHM)\b")
_NETWORK = re.compile(r"NCCL INFO (?:comm \S+ .*\b)?Using network (?P<net>[\w-]+(?: [\w-]+)*)")
_HOST = re.compile(r"(?:^|\] )(?P<host>[\w.-]+):\d+:\d+ ")
# Upper bound for the names of each kind in a record.
_MAX_NAMES = 64
_ANY = re.compile(r"NCCL INFO (?:NET/|Channel |(?:comm \S+ .*\b)?Using network )")


@dataclass
class Transport:
    """The chosen networks, channels and devices per network, and GPUDirect RDMA, from NCCL's lines.

    `inside` are the channels between GPUs of one node, by P2P (NVLink, PCIe) and SHM (the node's memory).
    """

    networks: set[str] = field(default_factory=set)
    channels: dict[str, int] = field(default_factory=dict)
    devices: dict[str, set[str]] = field(default_factory=dict)
    gdrdma: int = 0
    inside: dict[str, int] = field(default_factory=dict)

    @property
    def tcp(self) -> bool:
        """Whether bytes went through sockets."""
        return self.channels.get("Socket", 0) > 0 or (not self.channels and self.networks == {"Socket"})

    @property
    def other(self) -> list[str]:
        """Return the networks other than sockets, such as IB."""
        return sorted({*self.channels, *(self.networks if not self.channels else ())} - {"Socket"})

    def as_dict(self) -> dict[str, Any] | None:
        """Return the record of summary.json, None without lines of NCCL; the ranks themselves name the devices."""
        if not (self.networks or self.channels or self.inside):
            return None
        return {
            "networks": sorted(self.networks)[:_MAX_NAMES],
            "channels": dict(sorted(self.channels.items())[:_MAX_NAMES]),
            "devices": {
                net: sorted(name[:64] for name in names)[:_MAX_NAMES] for net, names in sorted(self.devices.items())
            },
            "gdrdma": self.gdrdma,
            "inside": dict(sorted(self.inside.items())),
        }


def is_of_transport(line: str) -> bool:
    """Return whether read_nccl_lines may find something in this line."""
    return _ANY.search(line) is not None


def read_nccl_lines(lines: Iterable[str]) -> Transport:
    """Read the lines of NCCL from all ranks."""
    transport = Transport()
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
            transport.networks.add(network["net"])
        via = _VIA.search(line)
        if via:
            transport.channels[via["net"]] = transport.channels.get(via["net"], 0) + 1
            transport.gdrdma += via["gdr"] is not None
            used.add((host, via["net"], int(via["index"])))
        inside = _INSIDE.search(line)
        if inside:
            transport.inside[inside["way"]] = transport.inside.get(inside["way"], 0) + 1
    for host, net, index in used:
        # A plugin names its devices under its own name, and its channels under NCCL's.
        name = names.get((host, net, index)) or next(
            (name for (one, other, number), name in names.items() if one == host and number == index
             and other != "Socket" and net != "Socket"), f"{net} device {index}",
        )  # fmt: skip
        transport.devices.setdefault(net, set()).add(name)
    return transport
