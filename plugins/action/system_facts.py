# SPDX-License-Identifier: Apache-2.0
"""Set the facts of a host by the name of its system. Documentation: library/system_facts.py."""

from __future__ import annotations

from typing import Any

from ansible.module_utils.trainyard.base.findings import failure
from ansible.module_utils.trainyard.bundle import systems
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the facts, or the finding on an unknown system."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        name = str(self._task.args["system"])
        system = systems.named(name)
        if system is None:
            finding = systems.unsupported(name, str((task_vars or {}).get("inventory_hostname", "")))
            return {**result, **failure([finding], "Nothing is locked: {count} {findings}.")}
        return {**result, "ansible_facts": {f"ansible_{fact}": value for fact, value in system.facts.items()}}
