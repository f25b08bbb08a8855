# SPDX-License-Identifier: Apache-2.0
"""The shapes of what hosts answer about their adapters, as far as rules read it (base/received.py)."""

from __future__ import annotations

from ..base.shapes import MAYBE_NUMBER, MAYBE_TEXT, NOTHING, OWN, Raw, Whole

_PORT = {
    "device": str,
    "port": Whole(1 << 16),
    **dict.fromkeys(("state", "physical_state", "link_layer", "netdev"), MAYBE_TEXT),
    "rate_gbps": MAYBE_NUMBER,
    "active": bool,
}
# Answers of library/network_info and ibv_devices; what stands there as `object` comes from the inventory.
RDMA = {
    "host": OWN,
    "networks": {"rdma": [_PORT], "problems": [str]},
    "virtual": str,
    "verbs": (Raw(1 << 20), NOTHING),
    **dict.fromkeys(("expected", "ports", "rate_gbps", "link_layer"), object),
}
