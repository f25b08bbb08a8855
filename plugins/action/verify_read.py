# SPDX-License-Identifier: Apache-2.0
"""Ask all nodes what they have, and for their clocks. Documentation: library/verify_read.py."""

from __future__ import annotations

import contextlib
from typing import Any

from ansible.errors import AnsibleError
from ansible.module_utils.trainyard_controller.fan_out import FanOut
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """One visit to each node, and three short ones for its clock."""

    BYPASS_HOST_LOOP = True
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return `answers` by host; one that gave none is among them, with the reason."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        given = self._task.args
        nodes = FanOut(self, task_vars or {})
        hosts = [host for host in given["hosts"] if nodes.allowed(host)]
        own = {}
        for host in hosts:
            own[host] = {"host": host, "address": host}
            # An error in a host's variables is its answer.
            with contextlib.suppress(AnsibleError):
                variables = nodes.variables(host)
                own[host]["address"] = str(nodes.template(variables.get("ansible_host") or host, variables))
        devices_only = bool(given.get("devices_only"))
        shared = {
            "network": given["network"],
            "alone": len(hosts) == 1,
            "user": given["user"],
            "root": given["root"],
            "venvs": given["venvs"],
            "ascend_root": given["ascend_root"],
            "tree": given.get("tree") or "/",
            "devices_only": devices_only,
        }

        limit_s = float(given["limit_s"])
        answers = nodes.ask("verify", own, shared, limit_s)
        if not devices_only:
            clocks = nodes.clocks([host for host in answers if "facts" in answers[host]], limit_s)
            for host, clock in clocks.items():
                answers[host]["clock"] = clock
        return {**result, "changed": False, "answers": answers}
