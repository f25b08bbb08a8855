# SPDX-License-Identifier: Apache-2.0
"""Have all nodes reach one another: listen, connect, stop listening, log in, try ports; each visits all of them."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from ...trainyard.base.adhoc import playbook
from ...trainyard.cluster import ssh_peers
from ...trainyard.verify.reach import verify
from ...trainyard.verify.reporting_hosts import answers
from ..nodes.fan_out import Answer, FanOut
from ..nodes.machine_facts import ask_machines
from .port_trials import try_ports

Answers = Mapping[str, Answer]


@dataclass(frozen=True)
class Request:
    """What nodes are to try: options of the step reach of library/verify.py."""

    peers: str
    names: bool
    ssh: bool
    ssh_peers: str
    ssh_parallel: int
    addresses: list[str]
    user: str
    network: str
    timeout_s: int
    life_s: int
    limit_s: float
    inventory: str


def try_all(nodes: FanOut, results: Mapping[str, Any], request: Request, with_tool: Collection[str]) -> dict[str, Any]:
    """Return the result of the step. Hosts `with_tool` must have the programs that try RDMA ports."""
    good, _ = answers(results, "network")
    connected = {host: node for host, node in good.items() if node["network"]["address"]}
    listeners, ended, rows = _connect(nodes, connected, request)
    by = {host: host if request.names else node["network"]["address"] or host for host, node in good.items()}
    logins = _log_in(nodes, by, request) if request.ssh else None
    again = playbook("playbooks/verify.yml", request.inventory, {"verify_phases": ["reach"]})
    limits = (request.timeout_s, request.life_s, request.limit_s)
    ports, spoiled = try_ports(nodes.ask, connected, *limits, again, with_tool)
    # Failed tries leave errors in counters, which must not count as those of the benchmarks.
    unread = dict.fromkeys(("root", "venvs", "ascend_root"), "")
    settings = {"network": request.network, "user": request.user, **unread, "devices_only": True}
    counted = ask_machines(nodes, spoiled, settings, request.limit_s) if spoiled else {}
    checks, usable, details = verify(
        results,
        listeners,
        ended,
        rows,
        logins,
        by=by,
        user=request.user,
        network=request.network,
        inventory=request.inventory,
    )
    return {
        "checks": [check.as_dict() for check in [*checks, *ports]],
        "usable": usable,
        "nodes": details,
        "counted": {host: answer for host, answer in counted.items() if "devices" in answer},
    }


def _connect(nodes: FanOut, connected: Mapping[str, Any], request: Request) -> tuple[Answers, Answers, Answers]:
    """Return the answers of the listeners, those to their end, and which of them each node reached."""
    # Distinguishes this test from other services.
    token = f"trainyard-{secrets.randbelow(10**12)}"
    own: dict[str, dict[str, Any]] = {
        host: {"host": host, **{key: node["network"][key] for key in ("address", "addresses")}}
        for host, node in connected.items()
    }
    most = ssh_peers.parse_peers(request.peers)
    listeners = nodes.ask("listen", own, {"token": token, "life_s": request.life_s}, request.limit_s)
    ports = {host: answer for host, answer in listeners.items() if "endpoint" in answer}
    names = list(ports)
    try:
        # Each node tries its own endpoint, too.
        own = {
            host: {
                "host": host,
                "peers": [ports[name]["endpoint"] for name in [host, *ssh_peers.peers(names, host, most)]],
            }
            for host in names
        }
        shared = {"token": token, "timeout_s": request.timeout_s, "names": request.names}
        rows = nodes.ask("connect", own, shared, request.limit_s)
    finally:
        own = {host: {key: answer.get(key) for key in ("pid", "start_time")} for host, answer in ports.items()}
        ended = nodes.ask("unlisten", own, None, request.limit_s)
    return listeners, ended, rows


def _log_in(nodes: FanOut, by: Mapping[str, str], request: Request) -> Answers:
    """Return the answers of all nodes, which log in to others `by` their names or addresses."""
    most = ssh_peers.parse_peers(request.ssh_peers)
    own = {host: {"host": host, "nodes": [by[peer] for peer in ssh_peers.peers(list(by), host, most)]} for host in by}
    shared = {
        "user": request.user,
        "connect_timeout": request.timeout_s,
        "parallel": request.ssh_parallel,
        "addresses": request.addresses,
    }
    return nodes.ask("logins", own, shared, request.limit_s)
