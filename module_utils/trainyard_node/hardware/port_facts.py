# SPDX-License-Identifier: Apache-2.0
"""Read what RDMA needs on this machine, from sysfs, and from ibv_devinfo where a port is active."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ...trainyard.hardware.interfaces import Networks, RdmaPort, natural_order, port_name
from ...trainyard.hardware.ping_tools import active_mtus, redirecting_bridges
from ...trainyard.hardware.port_health import choose_gid
from ...trainyard.hardware.tool_text import number
from ..machine.tree import Tree

_TOOL_SECONDS = 20
_SPEED = re.compile(r"([0-9]{1,3}(?:\.[0-9])?) GT/s")
_PCI, _BOND = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"), "/sys/class/net/{}/bonding/{}"
# A table of GIDs has at most so many entries.
_MAX_GIDS, _MAX_LANES = 256, 32


def read_port_facts(tree: Tree, networks: Networks) -> dict[str, Any]:
    """Return `rdma` by port, `peer_memory`, `iommu` by device, `acs` (None where it is not known), and `bonds`."""
    active = [port for port in networks["rdma"] if port["active"] and _is_adapter(tree, port["device"])]
    devices = sorted({port["device"] for port in active}, key=natural_order)
    mtus = active_mtus(tree.output("ibv_devinfo", ["ibv_devinfo"], _TOOL_SECONDS) or "") if active else {}
    index = number(networks["nccl_settings"].get("NCCL_IB_GID_INDEX", ""))
    return {
        "rdma": {
            port_name(port): {
                **_gid(tree, port, index if index is not None and index >= 0 else None),
                "mtu": mtus.get(port_name(port)),
                "pcie": _pcie(tree, port["device"]),
            }
            for port in active
        },
        "peer_memory": any(tree.exists(f"/sys/module/{name}") for name in ("nvidia_peermem", "nv_peer_mem"))
        or _dma_buf(tree),
        "iommu": {
            device: tree.text(f"/sys/class/infiniband/{device}/device/iommu_group/type") or "" for device in devices
        },
        "acs": _acs(tree, devices),
        "bonds": {
            item["name"]: _members(tree, item["name"])
            for item in networks["interfaces"]
            # Other bonds may have spares, which may be slower.
            if item["kind"] == "bond"
            and item["up"]
            and "802.3ad" in (tree.text(_BOND.format(item["name"], "mode")) or "")
        },
    }


def _is_adapter(tree: Tree, device: str) -> bool:
    """Tell whether it speaks InfiniBand or RoCE; iWARP and EFA have other connections."""
    return (tree.text(f"/sys/class/infiniband/{device}/node_type") or "1: CA") == "1: CA"


def _gid(tree: Tree, port: RdmaPort, index: int | None) -> dict[str, Any]:
    folder = f"/sys/class/infiniband/{port['device']}/ports/{port['port']}"
    roce = port["link_layer"] == "Ethernet"
    names = sorted(tree.names(f"{folder}/gids"), key=natural_order)[: _MAX_GIDS if roce else 1]
    entries = [
        (int(name), tree.text(f"{folder}/gids/{name}") or "", tree.text(f"{folder}/gid_attrs/types/{name}") or "")
        for name in names
        if name.isdecimal()
    ]
    chosen = choose_gid(entries, index if roce else None) or (None, "", "")
    return {"roce": roce, **dict(zip(("gid", "address", "type"), chosen))}


def _pcie(tree: Tree, device: str) -> dict[str, float | None]:
    """Return width and speed (GT/s) of an adapter, and what both it and the bridge above it support."""
    folder = f"/sys/class/infiniband/{device}/device"

    def read(place: str, what: str) -> float | None:
        text = tree.text(f"{place}_link_{what}") or ""
        match = _SPEED.match(text)
        lanes = number(text) if what == "width" else None
        # Virtual functions have no link: 0, 255 or Unknown.
        return float(match[1]) if match else float(lanes) if lanes and 0 < lanes <= _MAX_LANES else None

    found: dict[str, float | None] = {}
    for what in ("width", "speed"):
        limits = [limit for place in (folder, f"{folder}/..") if (limit := read(f"{place}/max", what))]
        found |= {what: read(f"{folder}/current", what), f"{what}_max": min(limits, default=None)}
    return found


def _dma_buf(tree: Tree) -> bool:
    release = re.match(r"(\d+)\.(\d+)", tree.text("/proc/sys/kernel/osrelease") or "")
    new = release is not None and (int(release[1]), int(release[2])) >= (5, 12)
    return new and "Open Kernel Module" in (tree.text("/proc/driver/nvidia/version") or "")


def _acs(tree: Tree, devices: Sequence[str]) -> list[str] | None:
    """Return the ports of PCIe switches above these and GPUs that redirect; None where tools or sysfs do not tell."""
    links = [f"/sys/class/infiniband/{device}/device" for device in devices]
    links += [f"/sys/bus/pci/devices/{gpu}" for gpu in tree.names("/proc/driver/nvidia/gpus") if devices]
    above = {part for link in links for part in tree.path(link).resolve().parts[:-1] if _PCI.fullmatch(part)}
    output = tree.output("lspci.vvv", ["lspci", "-Dvvv"], _TOOL_SECONDS) if above else None
    found = None if output is None else redirecting_bridges(output)
    return None if found is None else [each for each in found if each in above]


def _members(tree: Tree, bond: str) -> list[dict[str, Any]]:
    aggregator, members = tree.text(_BOND.format(bond, "ad_aggregator")), []
    for name in (tree.text(_BOND.format(bond, "slaves")) or "").split():
        own = f"/sys/class/net/{name}"
        joined, speed = tree.text(f"{own}/bonding_slave/ad_aggregator_id"), tree.number(f"{own}/speed")
        up = tree.text(f"{own}/bonding_slave/mii_status") or ""
        members.append(
            {
                "name": name,
                "up": up in ("", "up"),
                "used": not aggregator or not joined or aggregator == joined,
                "speed_mbps": speed if speed is not None and speed > 0 else None,
            }
        )
    return members
