# SPDX-License-Identifier: Apache-2.0
"""Put the files of a lock together. Documentation: library/site_bundle.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.module_utils.trainyard.bundle import contents, site_lock
from ansible.module_utils.trainyard.findings.findings import FindingsError, UnusableError
from ansible.module_utils.trainyard_controller import bundling, site_locking
from ansible.module_utils.trainyard_controller.action_plugin import Documented


class ActionModule(Documented):
    def answer(self, given: dict[str, Any]) -> dict[str, Any]:
        lock = site_locking.read(Path(given["lock"]))
        if lock is None:
            raise UnusableError(f"There is no lock {given['lock']}: run playbooks/lock.yml first.")
        target = Path(given["folder"]) / contents.name(given["name"], site_lock.text(lock))
        items = contents.items(lock)
        older = Path(given["since"]).expanduser() if given["since"] else None
        if older:
            items = contents.new_since(items, bundling.older_sums(older))
        if self._task.check_mode:
            missing = contents.missing(lock)
            self._display.display("\n".join(contents.listing(items, missing)))
            return {"changed": not target.exists(), "bundle": str(target), "missing": missing}
        try:
            whole = target.exists()
            changed = self._follow(items, target) if whole else self._make(lock, items, target, older, given)
        except OSError as error:
            raise UnusableError(f"The bundle cannot be written: {error}") from error
        refused = bundling.refused(items, target)
        there, missing = [item for item in items if item not in refused], contents.missing(lock, refused, str(target))
        self._display.display("\n".join(contents.listing(there, missing)[len(there) :]))
        return {"changed": changed, "bundle": str(target), "missing": missing}

    def _follow(self, items: list[contents.Item], target: Path) -> bool:
        """Bring what wanted a login before into a bundle that is there; return whether something came."""
        self._display.display(f"{target} is there already, made of the same lock")
        before = bundling.refused(items, target)
        self._fetch([item for item in items if item.may_follow], target)
        return bundling.refused(items, target) != before

    def _make(
        self, lock: dict[str, Any], items: list[contents.Item], target: Path, older: Path | None, given: dict[str, Any]
    ) -> bool:
        part = target.with_name(f"{target.name}.part")
        self._fetch(items, part)
        key = bundling.Key(Path(given["key"]))
        bundling.finish(part, lock, items, older, key, given["version"])
        part.rename(target)
        self._display.display(f"bundle  {target}\nkey     {key.fingerprint}")
        return True

    def _fetch(self, items: list[contents.Item], folder: Path) -> None:
        findings = bundling.fetch(items, folder, self._display.display)
        if findings:
            raise FindingsError(findings, "The bundle is not whole: {count} {findings}.")
