# SPDX-License-Identifier: Apache-2.0
"""Check a bundle for all hosts, and pack what they lack. Documentation: library/site_bundle_use.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.module_utils.trainyard.bundle import systems, use
from ansible.module_utils.trainyard.findings.findings import FindingsError, UnusableError
from ansible.module_utils.trainyard_controller import site_locking
from ansible.module_utils.trainyard_controller.action_plugin import Documented
from ansible.module_utils.trainyard_controller.bundle_use import Bundle

_HEADLINE = "Nothing can be installed from the bundle: {count} {findings}. Nothing was changed."


class ActionModule(Documented):
    def answer(self, given: dict[str, Any]) -> dict[str, Any]:
        bundle = Bundle(Path(given["bundle"]).expanduser())
        _, requests, of_hosts, findings = site_locking.recorded(self.task_vars, given["hosts"])
        findings += bundle.findings(given["key"]) + bundle.refused(requests)
        findings += use.fit(bundle.lock, requests, of_hosts)
        there, wrong = use.on_hosts({host: given["states"].get(host) for host in of_hosts}, given["folder"])
        findings += wrong + ([] if given["older"] else use.older(there, bundle.made, bundle.stamp))
        lacking = [host for host, has in there.items() if has.stamp != bundle.stamp]
        if not findings:
            full = (
                use.no_room(host, there[host].free_kib, bundle.kib(of_hosts[host]), given["folder"]) for host in lacking
            )
            findings = [finding for finding in full if finding]
        if findings:
            raise FindingsError(findings, _HEADLINE)
        self._display.display(
            f"{bundle.folder} is signed by the key {bundle.fingerprint}, and all of its files are whole"
        )
        if lacking and not self._task.check_mode:
            self._pack(bundle, {of_hosts[host] for host in lacking}, Path(given["archives"]))
        return {
            "changed": bool(lacking),
            "stamp": bundle.stamp,
            "made": bundle.made,
            "lacking": lacking,
            "nodes": {
                host: {
                    "folder": given["folder"],
                    "system": str(of_hosts[host]),
                    "environments": pins,
                    "files": bundle.files(),
                }
                for host, pins in use.pins(bundle.lock, requests, of_hosts).items()
            },
        }

    def _pack(self, bundle: Bundle, needed: set[systems.System], archives: Path) -> None:
        try:
            for system in needed:
                bundle.pack(system, archives / f"{system}.tar")
        except OSError as error:
            raise UnusableError(f"The files for the nodes cannot be packed in {archives}: {error}") from error
