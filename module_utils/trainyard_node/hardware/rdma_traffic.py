# SPDX-License-Identifier: Apache-2.0
"""Bytes that the RDMA ports and network interfaces of this machine have sent and received, from sysfs.

port_xmit_data and port_rcv_data count units of four octets, on InfiniBand and on RoCE.
"""

from __future__ import annotations

from ..machine.tree import Tree

_UNIT_BYTES = 4


def read_traffic(tree: Tree) -> dict[str, dict[str, int | None]]:
    """Return `sent` and `received` of each port, {"mlx5_0:1": {...}}; None where the adapter does not count."""
    ports: dict[str, dict[str, int | None]] = {}
    for device in sorted(tree.names("/sys/class/infiniband")):
        folder = f"/sys/class/infiniband/{device}/ports"
        for port in sorted(tree.names(folder)):
            counts = {}
            for name, counter in (("sent", "port_xmit_data"), ("received", "port_rcv_data")):
                units = tree.number(f"{folder}/{port}/counters/{counter}")
                counts[name] = None if units is None or units < 0 else units * _UNIT_BYTES
            ports[f"{device}:{port}"] = counts
    return ports


def read_interface(tree: Tree, name: str) -> dict[str, dict[str, int | None]]:
    """Return the same of a network interface, {"eth0": {...}}; nothing where there is none of this name."""
    folder = f"/sys/class/net/{name}/statistics"
    if not name or "/" in name or not tree.exists(folder):
        return {}
    return {name: {"sent": tree.number(f"{folder}/tx_bytes"), "received": tree.number(f"{folder}/rx_bytes")}}
