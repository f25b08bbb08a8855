# SPDX-License-Identifier: Apache-2.0
"""Read all nodes and their clocks. Documentation: library/verify_read.py."""

from __future__ import annotations

from typing import Any

from ansible.module_utils.trainyard_controller.action_plugin import OnceForAll
from ansible.module_utils.trainyard_controller.machine_facts import ask_machines


class ActionModule(OnceForAll):
    def answer(self, given: dict[str, Any]) -> dict[str, Any]:
        nodes, limit_s = self.fan_out(), float(given["limit_s"])
        answers = ask_machines(nodes, given["hosts"], given, limit_s)
        if not given.get("devices_only"):
            for host, clock in nodes.clocks([host for host in answers if "facts" in answers[host]], limit_s).items():
                answers[host]["clock"] = clock
        return {"answers": answers}
