# SPDX-License-Identifier: Apache-2.0
"""Check what slows down or breaks RDMA on a node: PCIe, GID, MTU, GPUDirect, IOMMU, ACS; and the members of bonds.

The facts are `ports` of a reading, as trainyard_node/hardware/port_facts.py returns them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..base.checks import Check
from ..base.findings import grouped
from ..base.majority import usual
from .device_checks import Reading, Rule
from .interfaces import natural_order, nccl_ib_hca

_PCIE = Rule(
    "RDMA PCIe",
    "the width and speed that adapter and slot support",
    "the link has lost lanes or speed",
    "reseat the adapter, check riser and BIOS settings of the slot; then replace it",
    "grep . /sys/class/infiniband/*/device/{current,max}_link_{speed,width}",
)
_GID = Rule(
    "RoCE GID",
    "a GID of RoCE v2 with an address, of the same type on all nodes",
    "packets of RoCE have no address, or one that others do not take",
    "give the port's interface an address; or set NCCL_IB_GID_INDEX to an entry of that type, or leave it out",
    "grep . /sys/class/infiniband/*/ports/*/gid_attrs/types/* 2>/dev/null",
)
_MTU = Rule(
    "RDMA MTU",
    "the active MTU that the port has on most nodes",
    "messages are sent in smaller packets",
    "set the MTU of interface and switch port (RoCE: 4200 or more), or that of the partition (InfiniBand)",
    "ibv_devinfo",
)
_GPUDIRECT = Rule(
    "GPUDirect RDMA",
    "the module nvidia_peermem, or DMA-BUF (Linux 5.12 and NVIDIA's open modules)",
    "adapters do not reach the memory of GPUs, so every message is copied",
    "modprobe nvidia_peermem, and at boot by nvidia_driver_peermem: true; or install NVIDIA's open modules",
    "ls -d /sys/module/nvidia_peermem; cat /proc/driver/nvidia/version; uname -r",
)
_IOMMU = Rule(
    "IOMMU",
    "off, or passthrough (type identity)",
    "an IOMMU translates what adapters read and write",
    "boot with iommu=pt, or switch the IOMMU off in the BIOS where no virtual machines need it",
    "grep . /sys/class/infiniband/*/device/iommu_group/type; cat /proc/cmdline",
)
_ACS = Rule(
    "PCIe ACS",
    "no redirection at switches above adapters and GPUs",
    "traffic between GPU and adapter makes a detour through the CPU",
    "switch ACS off in the BIOS, or after each boot: setpci -s BRIDGE ECAP_ACS+0x6.w=0000",
    "lspci -Dvvv | grep -e ^[0-9a-f] -e ACSCtl",
)
_BONDS = Rule(
    "bond members",
    "every member is up, carries traffic, and has the speed of the others",
    "the bond has lost a part of its bandwidth",
    "check cable and switch port of the member, and the switch's LACP (cat /proc/net/bonding/*)",
    "cat /proc/net/bonding/*",
)
_V2, _ZERO = "RoCE v2", {"0", ":"}


def choose_gid(entries: Sequence[tuple[int, str, str]], index: int | None) -> tuple[int, str, str] | None:
    """Choose the GID of a RoCE port (index, address, type) that jobs take: as they set it, or RoCE v2 over IPv4.

    `index` is NCCL_IB_GID_INDEX, None where it is not set.
    """
    used = [entry for entry in entries if set(entry[1]) - _ZERO]
    if index is not None:
        return next((entry for entry in used if entry[0] == index), None)

    def rank(entry: tuple[int, str, str]) -> tuple[bool, bool, bool, int]:
        four, local = entry[1].startswith("0000:0000:0000:0000:0000:ffff:"), entry[1].startswith("fe80:")
        return entry[2] != _V2, not four, local, entry[0]

    return min(used, key=rank, default=None)


def used_ports(reading: Reading) -> dict[str, Mapping[str, Any]]:
    """Return the facts of the ports that jobs use, by name."""
    named = nccl_ib_hca(reading["rdma"]).lstrip("=").split(",")
    return {name: known for name, known in reading["ports"]["rdma"].items() if name in named}


def _pcie(known: Mapping[str, Any]) -> str:
    pairs = (("width", "x{:g} of x{:g}"), ("speed", "{:g} GT/s of {:g}"))
    found = ((known["pcie"][key], known["pcie"][f"{key}_max"], text) for key, text in pairs)
    return ", ".join(text.format(now, most) for now, most, text in found if now and most and now < most)


def _bond(name: str, members: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    best = max((each["speed_mbps"] or 0 for each in members), default=0)
    for each in members:
        if not each["up"]:
            yield f"{name} {each['name']} is down"
        elif not each["used"]:
            yield f"{name} {each['name']} is up, but not part of the active aggregate"
        elif each["speed_mbps"] and each["speed_mbps"] < best:
            yield f"{name} {each['name']} {each['speed_mbps']} Mb/s of {best}"


def check_ports(readings: Mapping[str, Reading], groups: Mapping[str, str], inventory: str) -> list[Check]:
    """Check the ports of all hosts; `groups` is the group of hardware of each host."""
    hosts = {host: reading for host, reading in readings.items() if "ports" in reading}
    rdma = {host: ports for host, reading in hosts.items() if (ports := used_ports(reading))}
    roce = {host: {name: each for name, each in ports.items() if each["roce"]} for host, ports in rdma.items()}
    roce = {host: ports for host, ports in roce.items() if ports}
    most = usual((each["type"] for ports in roce.values() for each in ports.values() if each["type"]), _V2)
    bonds = {host: reading["ports"]["bonds"] for host, reading in hosts.items() if reading["ports"]["bonds"]}
    facts = {host: hosts[host]["ports"] for host in rdma if hosts[host]["vendor"] == "nvidia"}
    found: list[tuple[Rule, dict[str, list[str]], str]] = [
        (_PCIE, {host: _texts(ports, _pcie) for host, ports in rdma.items()}, "full width and speed"),
        (_GID, {host: _texts(ports, lambda each: _gid(each, most)) for host, ports in roce.items()}, most),
        (_MTU, _mtus(rdma, groups), "as on the others"),
        (_GPUDIRECT, {host: [] if each["peer_memory"] else ["neither"] for host, each in facts.items()}, "there"),
        (_IOMMU, {host: _translated(each["iommu"]) for host, each in facts.items()}, "off or passthrough"),
        (_ACS, {host: each["acs"] for host, each in facts.items() if each["acs"] is not None}, "no redirection"),
        (
            _BONDS,
            {host: [text for bond in each.items() for text in _bond(*bond)] for host, each in bonds.items()},
            "all",
        ),
    ]
    return [check for rule, faults, passed in found for check in rule.checks(faults, {}, passed, inventory)]


def _translated(iommu: Mapping[str, str]) -> list[str]:
    return [f"{name} {kind}" for name, kind in iommu.items() if kind not in ("", "identity")]


def _texts(ports: Mapping[str, Mapping[str, Any]], problem: Any) -> list[str]:
    names = sorted(ports, key=natural_order)
    return [f"{name} {text}" for name in names if (text := problem(ports[name]))]


def _gid(known: Mapping[str, Any], most: str) -> str:
    if known["gid"] is None:
        return "has no GID"
    return f"GID {known['gid']} is {known['type'] or 'of no type'}, {most} on most" if known["type"] != most else ""


def _mtus(rdma: Mapping[str, Mapping[str, Mapping[str, Any]]], groups: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the ports whose active MTU is not that of the same port on most hosts of the group."""
    own = grouped(
        ((groups.get(host, ""), name), (host, each["mtu"]))
        for host, ports in rdma.items()
        for name, each in ports.items()
        if each["mtu"]
    )
    found: dict[str, list[str]] = {host: [] for ports in own.values() for host, _ in ports}
    for (_, name), ports in own.items():
        # The larger one is right where both are equally common.
        most = usual((mtu for _, mtu in ports), 0, int)
        for host, mtu in ports:
            if mtu != most:
                found[host].append(f"{name} {mtu}, {most} on most")
    return found
