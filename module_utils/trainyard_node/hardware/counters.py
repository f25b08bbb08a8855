# SPDX-License-Identifier: Apache-2.0
"""Error counters of this machine's network ports, as the kernel has them now.

A counter that cannot be read (EINVAL on virtual functions, all ones where the firmware does not answer) is None.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..machine.tree import Tree

# PortCounters of the InfiniBand specification; port_xmit_wait is congestion, not a fault.
_PORT_COUNTERS = (
    "symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors", "port_rcv_remote_physical_errors",
    "port_xmit_discards", "local_link_integrity_errors", "excessive_buffer_overrun_errors", "VL15_dropped",
)  # fmt: skip
# Of RoCE adapters: retransmissions that a lossy network causes.
_ROCE_COUNTERS = (
    "out_of_sequence", "packet_seq_err", "local_ack_timeout_err", "rx_icrc_encapsulated", "roce_adp_retrans_to",
)  # fmt: skip
_INTERFACE_COUNTERS = (
    "rx_errors", "rx_crc_errors", "rx_frame_errors", "rx_fifo_errors", "rx_length_errors", "rx_missed_errors",
    "tx_errors", "tx_carrier_errors", "tx_fifo_errors",
)  # fmt: skip
_ALL_ONES = (2**32 - 1, 2**64 - 1)


def _count(tree: Tree, path: str) -> int | None:
    number = tree.number(path)
    return None if number is None or number < 0 or number in _ALL_ONES else number


def _counts(tree: Tree, folder: str, names: Sequence[str]) -> dict[str, int | None]:
    return {name: _count(tree, f"{folder}/{name}") for name in names if tree.exists(f"{folder}/{name}")}


def rdma_counters(tree: Tree, device: str, port: int) -> dict[str, int | None]:
    """Return the fault counters that the port has."""
    folder = f"/sys/class/infiniband/{device}/ports/{port}"
    counters = _counts(tree, f"{folder}/counters", _PORT_COUNTERS)
    return {**counters, **_counts(tree, f"{folder}/hw_counters", _ROCE_COUNTERS)}


def interface_counters(tree: Tree, name: str) -> dict[str, int | None]:
    """Return the fault counters of a network interface, and how often its carrier was lost."""
    folder = f"/sys/class/net/{name}"
    counters = _counts(tree, f"{folder}/statistics", _INTERFACE_COUNTERS)
    return {**counters, **_counts(tree, folder, ("carrier_down_count",))}
