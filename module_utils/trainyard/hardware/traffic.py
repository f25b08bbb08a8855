# SPDX-License-Identifier: Apache-2.0
"""Bytes that network ports have carried between two readings of their counters. Pure.

Traffic of a node is {"mlx5_0:1": {"sent": bytes, "received": bytes}}, None for a counter that cannot be read; network
interfaces have their own names, beside RDMA ports.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

Traffic = Mapping[str, Mapping[str, "int | None"]]

# The highest value of 32 bits in units of four octets: a counter with it has stopped.
_FULL = (2**32 - 1) * 4
_PORT = re.compile(r"[A-Za-z0-9][\w.@:-]{0,63}")
_MAX_PORTS = 256
_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def grown(before: Traffic, after: Traffic) -> dict[str, dict[str, int | None]]:
    """Return what each port sent and received in between; None where a counter was reset or cannot be read."""
    return {
        port: {name: _difference((before.get(port) or {}).get(name), counts[name]) for name in ("sent", "received")}
        for port, counts in after.items()
    }


def _difference(first: int | None, last: int | None) -> int | None:
    return last - first if first is not None and last is not None and first <= last != _FULL else None


def moved(before: Traffic, after: Traffic) -> dict[str, int | None]:
    """Return the bytes that each port sent or received, whichever is more; None where a counter cannot be read."""
    ports = grown(before, after)
    return {
        port: max((count for count in counts.values() if count is not None), default=None)
        for port, counts in ports.items()
    }


def node_traffic(readings: Any) -> dict[str, dict[str, int | None]] | None:
    """Return the traffic of a node's ports between its readings `before` and `now`, None without readings.

    The node itself sends the names, so those that no port can have are dropped.
    """
    if not readings:
        return None
    ports = grown(readings["before"], readings["now"])
    return {port: ports[port] for port in sorted(ports)[:_MAX_PORTS] if _PORT.fullmatch(port)}


def is_rdma(port: str) -> bool:
    """Return whether a name is that of an RDMA port (`mlx5_0:1`), not of a network interface."""
    return re.search(r":\d+$", port) is not None


def size(count: float) -> str:
    """Write a number of bytes in powers of 1000."""
    unit = 0
    while count >= 1000 and unit < len(_UNITS) - 1:
        count, unit = count / 1000, unit + 1
    return f"{count:.0f} {_UNITS[unit]}" if unit == 0 else f"{count:.3g} {_UNITS[unit]}"
