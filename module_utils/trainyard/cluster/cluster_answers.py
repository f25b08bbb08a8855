# SPDX-License-Identifier: Apache-2.0
"""The shapes of what hosts answer about themselves as members of a cluster (base/received.py)."""

from __future__ import annotations

import ipaddress
from typing import Any

from ..base.shapes import MAYBE_INT, NOTHING, Is, Raw, Text, Whole

# Upper bounds: a limit in bytes or descriptors, an id of a user or group.
_MAX_LIMIT, _MAX_ID = 1 << 63, 1 << 32
_LIMIT, _ID = (Whole(_MAX_LIMIT), NOTHING), Whole(_MAX_ID)


def address(value: Any) -> None:
    """an IP address"""
    if not isinstance(value, str):
        raise ValueError(value)
    ipaddress.ip_address(value)


# What node_identity returns, and how the inventory names the host (ssh_names.NAMED_BY).
IDENTITY = {
    "__node_baseline_identity": {
        "hostname": Text(255),
        "addresses": [address],
        "default_address": (Is(("",)), address),
        "user": ({"uid": _ID, "gid": _ID}, NOTHING),
        **dict.fromkeys(("uid_owner", "gid_owner", "container"), Text(255)),
        "group_gid": (_ID, NOTHING),
        "hard_limits": {"memlock": _LIMIT, "nofile": _LIMIT},
        "can_raise_limits": bool,
        "nr_open": _LIMIT,
    },
    "?ansible_host": object,
    "?ssh_mesh_extra_principals": object,
}
# A result of the task that reads every host by a shell (playbooks/validate.yml), whatever became of it.
_PROBE = {
    **dict.fromkeys(("?stdout", "?stderr", "?module_stdout", "?module_stderr", "?msg"), Raw(1 << 20)),
    "?rc": MAYBE_INT,
    **dict.fromkeys(("?failed", "?unreachable", "?skipped"), bool),
    "?skip_reason": str,
}
PROBES = {
    "?ansible_host": object,
    "?trainyard_become": object,
    "?__validate_probe": _PROBE,
    "?__validate_plain": _PROBE,
}
