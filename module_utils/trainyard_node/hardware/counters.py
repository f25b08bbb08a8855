# SPDX-License-Identifier: Apache-2.0
"""Error counters of this machine's network ports, as the kernel has them now.

A counter that cannot be read (EINVAL on virtual functions, all ones where the firmware does not answer) is None.
"""

from __future__ import annotations

from ..machine.tree import Tree

# PortCounters of the InfiniBand specification; port_xmit_wait is congestion, not a fault.
RDMA_FAULTS = (
    "symbol_error",
    "link_error_recovery",
    "link_downed",
    "port_rcv_errors",
    "port_rcv_remote_physical_errors",
    "port_xmit_discards",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
    "VL15_dropped",
)
# Of RoCE adapters: what the retransmissions that a lossy network causes leave behind.
RDMA_HARDWARE = (
    "out_of_sequence",
    "packet_seq_err",
    "local_ack_timeout_err",
    "rx_icrc_encapsulated",
    "roce_adp_retrans_to",
)
INTERFACE_FAULTS = (
    "rx_errors",
    "rx_crc_errors",
    "rx_frame_errors",
    "rx_fifo_errors",
    "rx_length_errors",
    "rx_missed_errors",
    "tx_errors",
    "tx_carrier_errors",
    "tx_fifo_errors",
)
_ALL_ONES = (2**16 - 1, 2**32 - 1, 2**64 - 1)


def _count(tree: Tree, path: str) -> int | None:
    number = tree.number(path)
    return None if number is None or number < 0 or number in _ALL_ONES[1:] else number


def rdma_counters(tree: Tree, device: str, port: int) -> dict[str, int | None]:
    """Return the fault counters that the port has."""
    folder = f"/sys/class/infiniband/{device}/ports/{port}"
    return {
        name: _count(tree, f"{folder}/{kind}/{name}")
        for kind, names in (("counters", RDMA_FAULTS), ("hw_counters", RDMA_HARDWARE))
        for name in names
        if tree.exists(f"{folder}/{kind}/{name}")
    }


def interface_counters(tree: Tree, name: str) -> dict[str, int | None]:
    """Return the fault counters of a network interface, and how often its carrier was lost."""
    folder = f"/sys/class/net/{name}"
    found = {
        counter: _count(tree, f"{folder}/statistics/{counter}")
        for counter in INTERFACE_FAULTS
        if tree.exists(f"{folder}/statistics/{counter}")
    }
    if tree.exists(f"{folder}/carrier_down_count"):
        found["carrier_down_count"] = _count(tree, f"{folder}/carrier_down_count")
    return found
