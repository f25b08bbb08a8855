# SPDX-License-Identifier: Apache-2.0
"""Error counters of network ports: their growth between two readings, as the counts themselves may be years old."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..base.findings import counted

Counters = Mapping[str, "int | None"]

# The highest values of counters in the InfiniBand specification: they have 4, 8 or 16 bits.
_STOPS = {
    **dict.fromkeys(("local_link_integrity_errors", "excessive_buffer_overrun_errors"), 15),
    **dict.fromkeys(("link_error_recovery", "link_downed"), 255),
    **dict.fromkeys(("symbol_error", "port_rcv_errors", "port_rcv_remote_physical_errors"), 65535),
    **dict.fromkeys(("port_xmit_discards", "VL15_dropped"), 65535),
}
_LOST = ("link_downed", "carrier_down_count")
# Damaged bits: the cable or one of its ends. Other counters also count effects of peers and full queues.
_DAMAGED = ("symbol_error", "port_rcv_errors", "rx_crc_errors")
# Errors per hour that the InfiniBand specification allows on a good link.
DAMAGED_AN_HOUR = 120


def growth(name: str, before: int | None, after: int | None) -> tuple[int | None, str]:
    """Return the growth of a counter, or None and the reason.

    A counter that went back was reset (by a tool or a reloaded driver): it grew at least by its present value. One at
    its highest value has stopped.
    """
    if before is None or after is None:
        return None, "not readable"
    if after < before:
        return (after, "was reset") if after else (None, "was reset")
    if after == before == _STOPS.get(name):
        return None, f"stopped at its highest value, {after}"
    return after - before, ""


def bad_links(before: Mapping[str, Counters], now: Mapping[str, Counters], hours: float) -> str:
    """Name the ports that lost their link or received damaged bits in these hours; "" without any."""
    ports = [(name, before[name], counters) for name, counters in now.items() if name in before]
    return ", ".join(text for port in ports for text in _bad(*port, max(1.0, hours)))


def _bad(port: str, before: Counters, now: Counters, hours: float) -> Iterator[str]:
    for name in (*_LOST, *_DAMAGED):
        more = growth(name, before.get(name), now.get(name))[0] or 0
        if name in _LOST and more:
            yield f"{port} lost its link {counted(more, 'time')}"
        elif more > DAMAGED_AN_HOUR * hours:
            yield f"{port} {name} +{more} in {hours:.0f} h"
