# SPDX-License-Identifier: Apache-2.0
"""The shapes of what hosts answer about Ascend's software, as far as rules read it (base/received.py)."""

from __future__ import annotations

import ipaddress
from typing import Any

from ..base.shapes import OWN, Each, Exact, Whole


def device_address(value: Any) -> None:
    """an IP address, or nothing"""
    if not isinstance(value, str):
        raise ValueError(value)
    if value:
        ipaddress.ip_address(value)


# Upper bound for the number of a device.
_MAX_DEVICE = 1 << 16
_DEVICE = {"physical_id": Whole(_MAX_DEVICE), "device_ip": device_address, **dict.fromkeys(("link", "net_health"), str)}
# Answers of library/ascend_state, with what the training user sees.
STATE = {
    "host": OWN,
    **dict.fromkeys(("machine", "driver", "firmware", "cann", "cann_path", "set_env"), str),
    "npu": ({"chip": str, "devices": [_DEVICE], **{name: [str] for name in ("problems", "notes")}}, Exact({})),
    "boards": [dict.fromkeys(("firmware", "compatibility"), str)],
    **{name: [str] for name in ("cann_homes", "restart_due")},
    "installed": Each({"?sha256": object}),
    "?user_devices": Whole(_MAX_DEVICE),
    "?toolkit_home": str,
}
# `packages` come from the inventory.
NODE = {"state": STATE, "packages": object}
# The role's variables, from the inventory.
INPUT = {
    "host": OWN,
    **dict.fromkeys(("source", "root"), str),
    "manage_system": bool,
    "devices": int,
    **dict.fromkeys(("packages", "net_health"), object),
}
