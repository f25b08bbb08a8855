# SPDX-License-Identifier: Apache-2.0
"""Send many hosts one query that changes nothing there. Documentation: library/fan_out.py."""

from __future__ import annotations

from typing import Any

from ansible.module_utils.trainyard.findings.findings import failure
from ansible.module_utils.trainyard_controller.action_plugin import OnceForAll
from ansible.module_utils.trainyard_controller.fan_out import LIMIT_S, is_silent


class ActionModule(OnceForAll):
    def answer(self, given: dict[str, Any]) -> dict[str, Any]:
        own = {host: dict((given.get("own") or {}).get(host) or {}) for host in given["hosts"]}
        for host, arguments in own.items():
            if given.get("named"):
                arguments[given["named"]] = host
            if given.get("arguments"):
                own[host] = {**self.value_on(host, given["arguments"]), **arguments}
        limit_s = float(given.get("limit_s") or LIMIT_S)
        nodes = self.fan_out()
        answers = nodes.ask(given["question"], own, given.get("shared"), limit_s)
        clocks = {}
        if given.get("clock"):
            clocks = nodes.clocks([host for host in own if answers[host] and not is_silent(answers[host])], limit_s)
        result = {"answers": {**answers, **{host: {**answers[host], "clock": clocks[host]} for host in clocks}}}
        findings = nodes.silent_findings({**answers, **clocks}) if given.get("required") else []
        return {**result, **(failure(findings, "{count} {findings}:") if findings else {})}
