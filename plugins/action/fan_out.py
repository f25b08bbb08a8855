# SPDX-License-Identifier: Apache-2.0
"""Send many hosts one query that changes nothing there. Documentation: library/fan_out.py."""

from __future__ import annotations

from typing import Any

from ansible.module_utils.trainyard.base.findings import failure
from ansible.module_utils.trainyard_controller.ansible.action_plugin import Documented
from ansible.module_utils.trainyard_controller.nodes.fan_out import is_silent


class ActionModule(Documented):
    def answer(self, given: dict[str, Any]) -> dict[str, Any]:
        own = {host: dict(given["own"].get(host) or {}) for host in given["hosts"]}
        for host, arguments in own.items():
            if given["named"]:
                arguments[given["named"]] = host
            if given["arguments"]:
                own[host] = {**self.value_on(host, given["arguments"]), **arguments}
        nodes, limit_s = self.fan_out(), given["limit_s"]
        answers = nodes.ask(given["question"], own, given["shared"], limit_s)
        clocks = {}
        if given["clock"]:
            clocks = nodes.clocks([host for host in own if answers[host] and not is_silent(answers[host])], limit_s)
        result = {"answers": {**answers, **{host: {**answers[host], "clock": clocks[host]} for host in clocks}}}
        findings = nodes.silent_findings({**answers, **clocks}) if given["required"] else []
        return {**result, **(failure(findings, "{count} {findings}:") if findings else {})}
