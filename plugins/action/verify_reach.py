# SPDX-License-Identifier: Apache-2.0
"""Try all ways between the nodes, and check them. Documentation: library/verify_reach.py."""

from __future__ import annotations

import secrets
from typing import Any

from ansible.module_utils.trainyard.cluster.ssh_logins import parse_peers, peers
from ansible.module_utils.trainyard.verify import reach
from ansible.module_utils.trainyard_controller.action_plugin import OnceForAll


class ActionModule(OnceForAll):
    def answer(self, given: dict[str, Any]) -> dict[str, Any]:
        """Let all nodes listen, connect, stop listening, and log in; each step visits all of them at once."""
        nodes, limit_s, timeout_s = self.fan_out(), float(given["limit_s"]), int(given["timeout_s"])
        good, _ = reach.answers(given["results"], "facts")
        # Distinguishes this test from other services.
        token = f"trainyard-{secrets.randbelow(10**12)}"
        own: dict[str, dict[str, Any]] = {
            host: {"host": host, **{key: node["network"][key] for key in ("address", "addresses")}}
            for host, node in good.items()
            if node["network"]["address"]
        }
        listeners = nodes.ask("listen", own, {"token": token, "life_s": int(given["life_s"])}, limit_s)
        open_ports = {host: answer for host, answer in listeners.items() if "endpoint" in answer}
        try:
            shared = {"token": token, "timeout_s": timeout_s, "names": bool(given["names"])}
            rows = nodes.ask("connect", _peers(open_ports, parse_peers(str(given["peers"]))), shared, limit_s)
        finally:
            own = {host: {key: answer.get(key) for key in ("pid", "start_time")} for host, answer in open_ports.items()}
            ended = nodes.ask("unlisten", own, None, limit_s)
        by = {host: host if given["names"] else node["network"]["address"] or host for host, node in good.items()}
        logins = None
        if given["ssh"]:
            names, most = list(good), parse_peers(str(given["ssh_peers"]))
            own = {host: {"host": host, "nodes": [by[peer] for peer in peers(names, host, most)]} for host in names}
            shared = {"user": given["user"], "connect_timeout": timeout_s, "parallel": int(given["ssh_parallel"])}
            shared["addresses"] = given["addresses"]
            logins = nodes.ask("logins", own, shared, limit_s)
        texts = {name: given[name] for name in ("user", "network", "inventory")}
        checks, usable, details = reach.verify(given["results"], listeners, ended, rows, logins, by=by, **texts)
        return {"checks": [check.as_dict() for check in checks], "usable": usable, "nodes": details}


def _peers(open_ports: dict[str, Any], most: int | None) -> dict[str, dict[str, Any]]:
    """Return for each listening node its name and the endpoints that it tries, its own among them."""
    names = list(open_ports)
    return {
        host: {"host": host, "peers": [open_ports[name]["endpoint"] for name in [host, *peers(names, host, most)]]}
        for host in names
    }
