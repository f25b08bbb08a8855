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
        items, missing = contents.items(lock), contents.missing(lock)
        older = Path(given["since"]).expanduser() if given["since"] else None
        if older:
            items = contents.new_since(items, bundling.older_sums(older))
        show = self._display.display
        if self._task.check_mode:
            show("\n".join(contents.listing(items, missing)))
            return {"changed": not target.exists(), "bundle": str(target), "missing": missing}
        if target.exists():
            show(f"{target} is there already, made of the same lock.")
            return {"bundle": str(target), "missing": missing}
        part = target.with_name(f"{target.name}.part")
        try:
            findings = bundling.fetch(items, part, show)
            if findings:
                raise FindingsError(findings, "The bundle is not whole: {count} {findings}.")
            key = bundling.Key(Path(given["key"]))
            bundling.finish(part, lock, items, older, key, given["version"])
            part.rename(target)
        except OSError as error:
            raise UnusableError(f"The bundle cannot be written: {error}") from error
        show(
            "\n".join(
                [*contents.listing(items, missing)[len(items) :], f"bundle  {target}", f"key     {key.fingerprint}"]
            )
        )
        return {"changed": True, "bundle": str(target), "missing": missing}
