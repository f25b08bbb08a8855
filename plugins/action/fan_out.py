# SPDX-License-Identifier: Apache-2.0
"""Ask many hosts one question that changes nothing there. Documentation: library/fan_out.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.module_utils.trainyard.cluster.unreachable import findings
from ansible.module_utils.trainyard.findings.findings import failure
from ansible.module_utils.trainyard_controller.fan_out import LIMIT_S, FanOut
from ansible.module_utils.trainyard_controller.host_variables import value_on
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """Visit the hosts from one process, all at once."""

    BYPASS_HOST_LOOP = True
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return `answers` by host; one that gave none is among them, with the reason."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        given = self._task.args
        own = {host: dict((given.get("own") or {}).get(host) or {}) for host in given["hosts"]}
        if given.get("named"):
            own = {host: {**arguments, given["named"]: host} for host, arguments in own.items()}

        if given.get("arguments"):
            own = {host: {**value_on(self, task_vars or {}, host, given["arguments"]), **own[host]} for host in own}

        limit_s = float(given.get("limit_s") or LIMIT_S)
        nodes = FanOut(self, task_vars or {})
        answers = nodes.ask(given["question"], own, given.get("shared"), limit_s)
        silent = _silent(answers)
        if given.get("clock"):
            asked = [host for host, answer in answers.items() if answer and host not in silent]
            clocks = nodes.clocks(asked, limit_s)
            silent.update(_silent(clocks))
            answers.update({host: {**answers[host], "clock": clocks[host]} for host in asked})
        result.update(changed=False, answers=answers)
        if silent and given.get("required"):
            addresses = {host: str(nodes.variables(host).get("ansible_host") or host) for host in silent}
            result.update(failure(findings(silent, addresses), "{count} {findings}:"))
        return result


def _silent(answers: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {host: answer for host, answer in answers.items() if answer.get("failed") or answer.get("unreachable")}
