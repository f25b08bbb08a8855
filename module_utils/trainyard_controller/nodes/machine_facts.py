# SPDX-License-Identifier: Apache-2.0
"""Ask nodes for the facts that a verification compares, and a debug archive holds."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import Any

from ansible.errors import AnsibleError

from .fan_out import Answer, FanOut

# The number of nodes that ask the InfiniBand fabric: all would ask for the same, and load it.
_ASK_FABRIC = 2


def ask_machines(nodes: FanOut, hosts: Iterable[str], settings: Mapping[str, Any], limit_s: float) -> dict[str, Answer]:
    """Return the answers of the hosts that --limit leaves in; `settings` are options of the step read of verify."""
    own: dict[str, dict[str, Any]] = {host: {"host": host, "address": host} for host in hosts if nodes.allowed(host)}
    for host, arguments in own.items():
        # An error in a host's variables is its answer.
        with contextlib.suppress(AnsibleError):
            arguments["address"] = nodes.address(host)
    for host in list(own)[:_ASK_FABRIC]:
        own[host]["fabric"] = True
    shared = {name: settings[name] for name in ("network", "user", "root", "venvs", "ascend_root")}
    shared |= {"alone": len(own) == 1, "tree": settings.get("tree") or "/"}
    answers = nodes.ask("verify", own, {**shared, "devices_only": bool(settings.get("devices_only"))}, limit_s)
    for host in list(own)[_ASK_FABRIC:]:
        # Nobody else speaks for other hosts.
        (answers[host].get("network") or {}).pop("fabric", None)
    return answers
