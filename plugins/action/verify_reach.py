# SPDX-License-Identifier: Apache-2.0
"""Try all ways between the nodes, and check them. Documentation: library/verify_reach.py."""

from __future__ import annotations

import secrets
from typing import Any

from ansible.module_utils.trainyard.cluster.ssh_logins import parse_peers, peers
from ansible.module_utils.trainyard.verify import reach
from ansible.module_utils.trainyard_controller.fan_out import FanOut
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """Let all nodes listen, connect, listen no longer, and log in; each is one visit to all of them."""

    BYPASS_HOST_LOOP = True
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return `checks`, `usable` and `nodes`."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        given = self._task.args
        nodes, limit_s, timeout_s = FanOut(self, task_vars or {}), float(given["limit_s"]), int(given["timeout_s"])
        good, _ = reach.answers(given["results"], "facts")

        # What tells this test from other services.
        token = f"trainyard-{secrets.randbelow(10**12)}"
        own: dict[str, dict[str, Any]] = {
            host: {"host": host, **{key: node["network"][key] for key in ("address", "addresses")}}
            for host, node in good.items()
            if node["network"]["address"]
        }
        listeners = nodes.ask("listen", own, {"token": token, "life_s": int(given["life_s"])}, limit_s)
        heard = {host: answer for host, answer in listeners.items() if "endpoint" in answer}
        try:
            asked = {"token": token, "timeout_s": timeout_s, "names": bool(given["names"])}
            rows = nodes.ask("connect", _peers(heard, parse_peers(str(given["peers"]))), asked, limit_s)
        finally:
            own = {host: {key: answer.get(key) for key in ("pid", "start_time")} for host, answer in heard.items()}
            ended = nodes.ask("unlisten", own, None, limit_s)
        logins = None
        if given["ssh"]:
            names, most = list(good), parse_peers(str(given["ssh_peers"]))
            own = {host: {"host": host, "nodes": peers(names, host, most)} for host in names}
            shared = {"user": given["user"], "connect_timeout": timeout_s, "parallel": int(given["ssh_parallel"])}
            shared["addresses"] = given["addresses"]
            logins = nodes.ask("logins", own, shared, limit_s)
        checks, usable, told = reach.verify(
            given["results"],
            listeners,
            ended,
            rows,
            logins,
            user=given["user"],
            network=given["network"],
            inventory=given["inventory"],
        )
        found = {"checks": [check.as_dict() for check in checks], "usable": usable, "nodes": told}
        return {**result, "changed": False, **found}


def _peers(heard: dict[str, Any], most: int | None) -> dict[str, dict[str, Any]]:
    """Return what each node that listens is told of itself and of those that it tries."""
    names = list(heard)
    return {
        host: {"host": host, "peers": [heard[name]["endpoint"] for name in [host, *peers(names, host, most)]]}
        for host in names
    }
