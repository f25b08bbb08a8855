# SPDX-License-Identifier: Apache-2.0
"""Resolve the software of all hosts, and write the lock. Documentation: library/site_lock.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.module_utils.trainyard.bundle import files, images, site_lock
from ansible.module_utils.trainyard.findings.findings import FindingsError
from ansible.module_utils.trainyard.software import requested
from ansible.module_utils.trainyard_controller import controller_locking, file_locking, site_locking
from ansible.module_utils.trainyard_controller.action_plugin import Documented

_HEADLINE = "The software cannot be locked: {count} {findings}. No lock was written."


class ActionModule(Documented):
    def answer(self, given: dict[str, Any]) -> dict[str, Any]:
        requests, pinned, of_hosts, findings = site_locking.recorded(self.task_vars, given["hosts"])
        found_images, of_images = site_locking.images_of(images.wanted(requests, of_hosts))
        findings += [*requested.input_findings(requests), *of_images]
        if findings:
            raise FindingsError(findings, _HEADLINE)
        path = Path(given["path"])
        old = site_locking.read(path)
        wanted = site_lock.wanted(pinned, of_hosts)
        fresh = given["upgrade"] or self._task.check_mode
        kept = site_lock.unchanged(None if fresh else old, wanted)
        show = self._display.display
        found = site_locking.resolve(site_lock.without(wanted, kept), given["mirrors"], show)
        request = controller_locking.Request(given["controllers"], given["also"])
        own, of_controller = controller_locking.resolve(request, old, fresh, given["mirrors"], show)
        asked = files.with_old(files.requested(requests), old["files"] if old and not given["upgrade"] else ())
        archives, of_files = file_locking.resolve(asked, show)
        if findings := [*found.findings, *of_controller, *of_files]:
            raise FindingsError(findings, _HEADLINE)
        lock = site_lock.lock(wanted, kept, found.debs, found.wheels, requests, own, found.absent)
        lock |= {"files": [files.entry(each) for each in archives], "images": found_images}
        changed = old != lock
        if changed and not self._task.check_mode:
            site_locking.write(path, lock)
        changes = site_lock.changes(old, lock) if old else []
        show("\n".join([*changes, *site_lock.summary(lock)]))
        return {"changed": changed, "changes": changes, "lock": str(path)}
