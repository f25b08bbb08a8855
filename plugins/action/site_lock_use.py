# SPDX-License-Identifier: Apache-2.0
"""Compare hosts with the lock by which they install. Documentation: library/site_lock_use.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.module_utils.trainyard.bundle import held, site_lock, use
from ansible.module_utils.trainyard.findings.findings import Finding, UnusableError
from ansible.module_utils.trainyard_controller import site_locking
from ansible.module_utils.trainyard_controller.action_plugin import Documented

# Seconds for newer lists of packages, and the simulation of their installation.
_LIMIT_S = 300.0


class ActionModule(Documented):
    def answer(self, given: dict[str, Any]) -> dict[str, Any]:
        lock = site_locking.read(Path(given["lock"]))
        if lock is None:
            return {"findings": [held.absent(given["lock"]).as_dict()], "nodes": {}}
        _, requests, of_hosts, findings = site_locking.recorded(self.task_vars, given["hosts"])
        findings += use.lacking(lock, requests, of_hosts, "lock", held.AGAIN)
        try:
            versions = {
                system: use.versions(lock, system)
                for system in set(of_hosts.values())
                if str(system) in lock["systems"]
            }
        except site_lock.LockError as error:
            raise UnusableError(f"{given['lock']} cannot be used: {error}. Run playbooks/lock.yml again.") from error
        if not findings:
            findings = self._lacking(requests, {host: versions[system] for host, system in of_hosts.items()})
        preferences = {system: held.preferences(found) for system, found in versions.items()}
        nodes = {
            host: {"folder": "", "environments": pins, "preferences": preferences[of_hosts[host]]}
            for host, pins in use.pins(lock, requests, of_hosts).items()
        }
        return {"findings": [finding.as_dict() for finding in findings], "nodes": nodes}

    def _lacking(self, requests: dict[str, Any], versions: dict[str, dict[str, str]]) -> list[Finding]:
        """Return findings on hosts whose apt has not what they lack in the versions of the lock."""
        own = {
            host: {
                "locked": {
                    "versions": versions[host],
                    "packages": sorted(packages),
                    "source": parts.get("node_baseline", {}).get("apt_source", ""),
                }
            }
            for host, parts in requests.items()
            if (packages := use.packages(parts))
        }
        nodes = self.fan_out()
        answers = nodes.ask("can_install", own, {"requests": {}}, _LIMIT_S)
        found = ((host, each) for host, answer in answers.items() for each in answer.get("findings", ()))
        return nodes.silent_findings(answers) + [Finding.from_dict(each).on(host) for host, each in found]
