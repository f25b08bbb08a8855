# SPDX-License-Identifier: Apache-2.0
"""Fault counters of network ports, judged by their growth between two readings, as what they count may be years old."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..findings.findings import counted

Counters = Mapping[str, "int | None"]

# Where counters of the InfiniBand specification stop: 4, 8 and 16 bits wide.
_STOPS = {
    "symbol_error": 65535,
    "link_error_recovery": 255,
    "link_downed": 255,
    "port_rcv_errors": 65535,
    "port_rcv_remote_physical_errors": 65535,
    "port_xmit_discards": 65535,
    "local_link_integrity_errors": 15,
    "excessive_buffer_overrun_errors": 15,
    "VL15_dropped": 65535,
}
_LOST = ("link_downed", "carrier_down_count")
# Bits that came in damaged: the cable, or one of its ends. Others count what peers and full queues do as well.
_DAMAGED = ("symbol_error", "port_rcv_errors", "rx_crc_errors")
# So many an hour the InfiniBand specification lets a good link have.
DAMAGED_AN_HOUR = 120


def growth(name: str, before: int | None, after: int | None) -> tuple[int | None, str]:
    """Return by how much a counter grew, None where that cannot be told, and why.

    A counter that went back was reset (by a tool, a driver that was loaded again): what it counts since is the least
    that it grew. One that stands at the end of its width counts nothing more.
    """
    if before is None or after is None:
        return None, "not readable"
    if after < before:
        return (after, "was reset") if after else (None, "was reset")
    if after == before == _STOPS.get(name):
        return None, f"stands at its end, {after}"
    return after - before, ""


def bad_links(before: Mapping[str, Counters], now: Mapping[str, Counters], hours: float) -> str:
    """Say which links were lost or got damaged bits in these hours, by port, "" where none did."""
    ports = [(name, before[name], counters) for name, counters in now.items() if name in before]
    return ", ".join(text for port in ports for text in _bad(*port, max(1.0, hours)))


def _bad(port: str, before: Counters, now: Counters, hours: float) -> Iterator[str]:
    for name in (*_LOST, *_DAMAGED):
        more = growth(name, before.get(name), now.get(name))[0] or 0
        if name in _LOST and more:
            yield f"{port} lost its link {counted(more, 'time')}"
        elif more > DAMAGED_AN_HOUR * hours:
            yield f"{port} {name} +{more} in {hours:.0f} h"
