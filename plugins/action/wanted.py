# SPDX-License-Identifier: Apache-2.0
"""Note what hosts are to get of a part of the software. Documentation: library/wanted.py."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleError
from ansible.module_utils.trainyard_controller.host_variables import value_on
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """Read a variable of a role as each host has it, in this process; no host is visited."""

    BYPASS_HOST_LOOP = True
    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the fact `trainyard_wanted`, with this part in it beside those that were noted before."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        variables, given = task_vars or {}, self._task.args
        known = variables.get("ansible_facts", {}).get("trainyard_wanted") or {}
        wanted = {host: dict(parts) for host, parts in known.items()}
        for host in given["hosts"]:
            try:
                wanted.setdefault(host, {})[given["part"]] = value_on(self, variables, host, given["variable"])
            except AnsibleError as error:
                return {**result, "failed": True, "msg": f"{host}: what it is to get of {given['part']}: {error}"}
        return {**result, "changed": False, "ansible_facts": {"trainyard_wanted": wanted}}
