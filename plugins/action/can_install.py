# SPDX-License-Identifier: Apache-2.0
"""Ask all hosts what prevents the installation of their software. Documentation: library/can_install.py."""

from __future__ import annotations

from typing import Any

from ansible.module_utils.trainyard.cluster import unreachable as no_answer
from ansible.module_utils.trainyard.findings.findings import Finding
from ansible.module_utils.trainyard.software import requested
from ansible.module_utils.trainyard_controller.fan_out import FanOut
from ansible.module_utils.trainyard_controller.file_sources import packed_pip, source_findings
from ansible.plugins.action import ActionBase

# Seconds. An index may be slow to answer first, each package is one request, and data sets are read.
LIMIT_S = 300.0


class ActionModule(ActionBase):
    """One visit to all hosts, and a second one to those that have to ask an index."""

    BYPASS_HOST_LOOP = True
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return `findings`, and `seen`: the complete parts by host, and what was requested."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        variables, given = task_vars or {}, self._task.args
        requests: dict[str, Any] = variables.get("ansible_facts", {}).get("trainyard_requested") or {}
        findings = list(requested.input_findings(requests))
        nodes = FanOut(self, variables)
        own = {
            host: {"requests": {name: part for name, part in requests[host].items() if not part.get("findings")}}
            for host in given["hosts"]
            if host in requests
        }
        answers = nodes.ask("can_install", own, None, LIMIT_S)
        asking = {host: own[host] for host, answer in answers.items() if answer.get("asks_index")}
        pip = packed_pip() if asking else ""
        if pip:
            answers |= nodes.ask("can_install", asking, {"pip": pip}, LIMIT_S)
        silent = {host: answer for host, answer in answers.items() if answer.get("failed") or answer.get("unreachable")}
        addresses = {host: str(nodes.variables(host).get("ansible_host") or host) for host in silent}
        findings += no_answer.findings(silent, addresses)
        good = {host: answer for host, answer in answers.items() if "findings" in answer}
        findings += [Finding.from_dict(each).on(host) for host, answer in good.items() for each in answer["findings"]]
        needed = {host: answer["files"] for host, answer in good.items()}
        findings += source_findings(requested.needed_of_controller(requests, needed))
        seen = {host: requested.seen_of(requests[host], answer["seen"]) for host, answer in good.items()}
        return {**result, "changed": False, "findings": [finding.as_dict() for finding in findings], "seen": seen}
