# SPDX-License-Identifier: Apache-2.0
"""Record a role's request for software of each host. Documentation: library/software_request.py."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleError
from ansible.module_utils.trainyard.findings.findings import UnusableError
from ansible.module_utils.trainyard_controller import software_requests
from ansible.module_utils.trainyard_controller.action_plugin import OnceForAll


class ActionModule(OnceForAll):
    def answer(self, given: dict[str, Any]) -> dict[str, Any]:
        requests = {}
        for host in given["hosts"]:
            try:
                requests[host] = self.value_on(host, given["variable"])
            except AnsibleError as error:
                raise UnusableError(f"{host}: the request of {given['part']}: {error}") from error
        software_requests.record(given["part"], requests)
        return {"requests": requests}
