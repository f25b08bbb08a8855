# SPDX-License-Identifier: Apache-2.0
"""Read all nodes and their clocks. Documentation: library/verify_read.py."""

from __future__ import annotations

import contextlib
from typing import Any

from ansible.errors import AnsibleError
from ansible.module_utils.trainyard_controller.action_plugin import OnceForAll


class ActionModule(OnceForAll):
    def answer(self, given: dict[str, Any]) -> dict[str, Any]:
        nodes = self.fan_out()
        own = {host: {"host": host, "address": host} for host in given["hosts"] if nodes.allowed(host)}
        for host, arguments in own.items():
            # An error in a host's variables is its answer.
            with contextlib.suppress(AnsibleError):
                arguments["address"] = nodes.address(host)
        devices_only = bool(given.get("devices_only"))
        shared = {name: given[name] for name in ("network", "user", "root", "venvs", "ascend_root")}
        shared |= {"alone": len(own) == 1, "tree": given.get("tree") or "/", "devices_only": devices_only}
        limit_s = float(given["limit_s"])
        answers = nodes.ask("verify", own, shared, limit_s)
        if not devices_only:
            for host, clock in nodes.clocks([host for host in own if "facts" in answers[host]], limit_s).items():
                answers[host]["clock"] = clock
        return {"answers": answers}
