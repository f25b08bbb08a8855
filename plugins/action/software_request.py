# SPDX-License-Identifier: Apache-2.0
"""Record what hosts are to get of a part of the software. Documentation: library/software_request.py."""

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
        """Return the fact `trainyard_requested` with this part added."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        variables, args = task_vars or {}, self._task.args
        previous = variables.get("ansible_facts", {}).get("trainyard_requested") or {}
        requests = {host: dict(parts) for host, parts in previous.items()}
        for host in args["hosts"]:
            try:
                requests.setdefault(host, {})[args["part"]] = value_on(self, variables, host, args["variable"])
            except AnsibleError as error:
                return {**result, "failed": True, "msg": f"{host}: the request of {args['part']}: {error}"}
        return {**result, "changed": False, "ansible_facts": {"trainyard_requested": requests}}
