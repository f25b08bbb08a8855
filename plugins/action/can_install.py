# SPDX-License-Identifier: Apache-2.0
"""Find on all hosts what prevents the installation of their software. Documentation: library/can_install.py."""

from __future__ import annotations

from typing import Any

from ansible.module_utils.trainyard.cluster.sharing import of_folders
from ansible.module_utils.trainyard.findings.findings import Finding
from ansible.module_utils.trainyard.software import requested
from ansible.module_utils.trainyard_controller import folder_sharing, software_requests
from ansible.module_utils.trainyard_controller.action_plugin import OnceForAll
from ansible.module_utils.trainyard_controller.file_sources import packed_pip, source_findings

# Seconds. An index may be slow to answer first, each package is one request, and data sets are read.
LIMIT_S = 300.0


class ActionModule(OnceForAll):
    def answer(self, given: dict[str, Any]) -> dict[str, Any]:
        requests = software_requests.recorded()
        findings = list(requested.input_findings(requests))
        nodes = self.fan_out()
        own = {
            host: {"requests": {name: part for name, part in requests[host].items() if not part.get("findings")}}
            for host in given["hosts"]
            if host in requests
        }
        folders = dict(given.get("folders") or {})
        answers, of_hosts = folder_sharing.with_folders(
            nodes.ask,
            [*folders.values()],
            str(given.get("user") or ""),
            lambda sharing: nodes.ask("can_install", own, {"sharing": sharing} if len(own) > 1 else None, LIMIT_S),
        )
        # A second visit to hosts that have to query an index.
        queries = {host: own[host] for host, answer in answers.items() if answer.get("asks_index")}
        pip = packed_pip() if queries else ""
        if pip:
            answers = {**answers, **nodes.ask("can_install", queries, {"pip": pip}, LIMIT_S)}
        findings += nodes.silent_findings(answers)
        good = {host: answer for host, answer in answers.items() if "findings" in answer}
        findings += [Finding.from_dict(each).on(host) for host, answer in good.items() for each in answer["findings"]]
        sharing = of_folders(own, folders.values(), of_hosts)
        groups = {path: [list(group) for group in each.groups] for path, each in sharing.items()}
        findings += requested.build_findings(requests, good, groups)
        needed = {host: answer["files"] for host, answer in good.items()}
        findings += source_findings(requested.needed_of_controller(requests, needed))
        seen = {host: requested.seen_of(requests[host], answer["seen"]) for host, answer in good.items()}
        return {
            "findings": [finding.as_dict() for finding in findings],
            "seen": seen,
            "sharing": groups,
            "summary": [
                f"{name} ({path}) is {sharing[path].text()}" for name, path in folders.items() if sharing[path].shared
            ],
        }
