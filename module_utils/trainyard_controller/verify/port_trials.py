# SPDX-License-Identifier: Apache-2.0
"""Try the RDMA ports and NPUs of all nodes with those of others: servers, then calls to them, then the servers' end."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from ...trainyard.base.checks import Check
from ...trainyard.base.findings import grouped
from ...trainyard.hardware.ping_tools import MISSING, SILENT, says_nothing
from ...trainyard.verify.port_pairs import NO_EQUAL, NO_TOOL, Nodes, Pair, address_of, choose, ends_of, verify
from ...trainyard.verify.reporting_hosts import answers


def try_ports(
    ask: Callable[..., Nodes],
    nodes: Nodes,
    timeout_s: int,
    life_s: int,
    limit_s: float,
    command: str,
    with_tool: Collection[str] = (),
) -> tuple[list[Check], list[str]]:
    """Return the checks, and the hosts whose error counters failed tries may have raised.

    `ask` is FanOut.ask. Both sides of a pair meet over TCP by the `nodes`' addresses. Hosts `with_tool` must have it.
    """
    ends = {host: ends_of(node["devices"]) for host, node in nodes.items()}
    pairs = choose(ends)

    def once(places: Iterable[int]) -> tuple[dict[int, str], dict[int, str]]:
        """Try these pairs; return why each failed ("" if it did not), and why some could not be tried."""
        untried = {at: NO_EQUAL for at in places if pairs[at].client == pairs[at].server}
        both = {at: _ends(ends, pairs[at]) for at in places if at not in untried}
        for at, (own, other) in both.items():
            server = pairs[at].server
            own["to"] = other["address"] if "npu" in own else address_of(nodes[server]["network"]["address"])
            if not own["to"]:
                untried[at] = f"{server} has no address that others can call"
        both = {at: each for at, each in both.items() if at not in untried}
        served = grouped((pairs[at].server, {"id": at, **end}) for at, (_, end) in both.items() if "npu" not in end)
        servers: dict[str, dict[int, Mapping[str, Any]]] = {}
        failed: dict[int, str] = {}
        calls = []
        try:
            opened, silent = answers(_asked(ask, "serve", served, "ends", {"life_s": life_s}, limit_s), "servers")
            servers = {host: {each["id"]: each for each in answer["servers"]} for host, answer in opened.items()}
            for at, (own, _) in both.items():
                pair = pairs[at]
                started = servers.get(pair.server, {}).get(at)
                if "npu" not in own and started is None:
                    untried[at] = f"no server on {pair.server}: {silent.get(pair.server, 'it did not start')}"
                elif started and started["problem"] == MISSING and pair.server not in with_tool:
                    untried[at] = NO_TOOL
                elif started and started["problem"]:
                    failed[at] = f"{started['problem']} (on {pair.server})"
                else:
                    tcp = {"tcp": started["tcp"]} if started else {}
                    calls.append((pair.client, {**own, "id": at, "peer": pair.server, "address": own["to"], **tcp}))
            # A call that begins at half of the time has ended long before all of it.
            shared = {"timeout_s": timeout_s, "limit_s": limit_s / 2}
            rows, mute = answers(_asked(ask, "ping", grouped(calls), "calls", shared, limit_s), "failures")
        finally:
            running = {host: list(each.values()) for host, each in servers.items()}
            closed, _ = answers(_asked(ask, "close", running, "servers", {}, limit_s), "waiting")
        whys = {host: {each["id"]: each["reason"] for each in row["failures"]} for host, row in rows.items()}
        for host, call in calls:
            at, server = call["id"], call["peer"]
            why = whys.get(host, {}).get(at, "")
            if host in mute or at in rows[host]["left"]:
                untried[at] = f"{host}: {mute.get(host, 'no time was left')}"
            elif "tcp" in call and why == MISSING and host not in with_tool:
                untried[at] = NO_TOOL
            elif "tcp" in call and why.startswith(SILENT) and at in closed.get(server, {"waiting": [at]})["waiting"]:
                # A firewall drops packets without a word.
                untried[at] = f"no connection over TCP to {server}: {why}"
            else:
                failed[at] = why
        return failed, untried

    first, untried = once(range(len(pairs)))
    second, missed = once([at for at, why in first.items() if why])
    checks = verify(pairs, ends, first, second, untried | missed, command)
    spoiled = [pairs[at] for at, why in first.items() if why and not says_nothing(why)]
    return checks, list(dict.fromkeys(host for pair in spoiled for host in pair[1:]))


def _ends(ends: Mapping[str, Nodes], pair: Pair) -> list[dict[str, Any]]:
    """Return what both sides are called with: packets of the size that both ports take, as a job's."""
    both = [dict(ends[host][pair.rail]) for host in pair[1:]]
    sizes = [end["mtu"] for end in both if end.get("mtu")]
    return [{**end, "mtu": min(sizes, default=None)} for end in both]


def _asked(
    ask: Callable[..., Nodes], step: str, own: Mapping[str, Sequence[Any]], name: str, shared: Any, limit_s: float
) -> Nodes:
    lists = {host: {name: each} for host, each in own.items()}
    return ask("try_ports", lists, {"step": step, **shared}, limit_s) if own else {}
