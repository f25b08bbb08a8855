# SPDX-License-Identifier: Apache-2.0
"""Which ports of the nodes are tried with which, rail by rail, and what the failures say: a port, a path, or a switch.

A rail has the ports of one name and link layer, one of each node. Up to ALL nodes, each port is tried with each other
one of its rail; above, with those 1, 2, 4, 8, ... nodes on around the ring, so the partners grow with the logarithm.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from ..base.checks import Check
from ..base.findings import counted, grouped, host_list, some_of
from ..cluster.ssh_peers import distances
from ..hardware.interfaces import natural_order
from ..hardware.ping_tools import says_nothing
from ..hardware.port_health import used_ports
from .reach import Failure, suspects

ALL = 16
# Why a port need not be tried.
NO_EQUAL = "no other node has a port of this name and link layer in use"
NO_TOOL = "ibv_rc_pingpong is not installed, which only nodes of the group rdma must have"
_MAX_NAMED = 6
_NAME = "port pairs"
_EXPECTED = "every port exchanges messages with the same port of other nodes"
_SWITCH = "look at the switches of this rail: uplinks, VLAN, MTU and PFC (RoCE), subnet manager and routes (InfiniBand)"
_PORT = "look at cable, optical module and switch port of each, and at its address, MTU and VLAN; then replace the part"
_PATH = "look at the way between them: uplinks and routes of their switches, firewall and MTU"
_UNTRIED = (
    "install ibv_rc_pingpong (role rdma), allow the TCP ports of docs/firewall.md, "
    "give /dev/infiniband/uverbs* the mode 0666 (udev), and see the phase devices"
)
Nodes = Mapping[str, Mapping[str, Any]]
Reasons = Mapping[int, str]
check = partial(Check, "reach")


class Pair(NamedTuple):
    """Two hosts with the ends of a rail: the client calls the server. A port without an equal is paired with itself."""

    rail: str
    client: str
    server: str

    def names(self, ends: Mapping[str, Nodes]) -> list[str]:
        """Name both ports for people."""
        shown = [(host, ends[host][self.rail]["shown"]) for host in self[1:]]
        return [f"{host} {self.rail}{f' ({text})' if text else ''}" for host, text in shown]


def ends_of(devices: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return what jobs of a node would use, by rail; each is as ping_tools calls it, with `shown` for people."""
    found = {}
    for name, known in used_ports(devices).items() if "ports" in devices else ():
        device, _, port = name.rpartition(":")
        gid, kind = known["gid"] if known["roce"] else None, f", {known['type']}" if known["roce"] else ""
        shown = f"GID {known['gid']} {address_of(known['address'])}{kind}" if known["address"] else ""
        end = {"device": device, "port": int(port), "gid": gid, "mtu": known["mtu"], "shown": shown}
        found[f"{'RoCE' if known['roce'] else 'InfiniBand'} port {name}"] = end
    for npu in devices["npus"]:
        if address := address_of(npu["device_ip"]):
            end = {"npu": npu["physical_id"], "address": address, "shown": address}
            found[f"NPU {npu['physical_id']}"] = end
    return found


def address_of(text: str) -> str:
    """Return an address, that of IPv4 for a GID that stands for one; "" for what no other node may be called with."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return ""
    return str(getattr(address, "ipv4_mapped", None) or address)


def choose(ends: Mapping[str, Nodes]) -> list[Pair]:
    """Return the pairs to try, each once and nearest first: as messages go both ways, either may be the client."""
    rails = grouped((rail, host) for host, own in ends.items() for rail in own)
    pairs = []
    for rail in sorted(rails, key=natural_order):
        hosts, seen = rails[rail], set()
        for distance in distances(len(hosts), most_distances(len(hosts))) or [0]:
            for at, client in enumerate(hosts):
                server = hosts[(at + distance) % len(hosts)]
                if frozenset((client, server)) not in seen:
                    seen.add(frozenset((client, server)))
                    pairs.append(Pair(rail, client, server))
    return pairs if len(ends) > 1 else []


def most_distances(count: int) -> int | None:
    """Return at how many distances a node is tried; None for all."""
    return None if count <= ALL else (count // 2).bit_length()


def verify(
    pairs: Sequence[Pair],
    ends: Mapping[str, Nodes],
    first: Reasons,
    second: Reasons,
    untried: Reasons,
    command: str = "",
) -> list[Check]:
    """Return the checks of all rails.

    `first` has for each pair by its place why it failed ("" if it did not), `second` that of those that failed in the
    first try, and `untried` why a pair was not tried.
    """
    if not pairs:
        return [check(_NAME, "skipped", reason="no two nodes have an RDMA port in use or an NPU with an address")]
    last = {**first, **second}
    untried = {**untried, **{at: why for at, why in last.items() if says_nothing(why)}}
    failed = {at: last[at] for at, why in first.items() if why and at not in untried}
    once, bad = (sorted(at for at in failed if bool(failed[at]) is wanted) for wanted in (False, True))
    good = sorted({*range(len(pairs))} - {*bad, *untried})
    checks = []
    for rail, places in grouped((pairs[at].rail, at) for at in sorted([*good, *bad])).items():
        for hosts, found, reason, action in _rail(pairs, ends, places, {at: failed[at] for at in places if at in bad}):
            checks.append(check(rail, "fail", tuple(hosts), found, _EXPECTED, reason, action, command))
    for why, missing in grouped((why, pairs[at]) for at, why in untried.items()).items():
        hosts = dict.fromkeys(host for pair in missing for host in pair[1:])
        rails = ", ".join(dict.fromkeys(pair.rail for pair in missing))
        found, reason = f"{why} ({rails})", "ports could not be tried"
        checks.append(
            check(_NAME, "skipped", tuple(hosts), rails, reason=why)
            if why in (NO_EQUAL, NO_TOOL)
            else check(_NAME, "unknown", tuple(hosts), found, _EXPECTED, reason, _UNTRIED, command)
        )
    if good:
        names, hosts = {pairs[at].rail for at in good}, {host for at in good for host in pairs[at][1:]}
        found = f"{counted(len(good), 'pair')} on {counted(len(names), 'rail')} between {counted(len(hosts), 'node')}"
        found += f"; passed only when tried again: {_ways(pairs, ends, once)}" if once else ""
        checks.append(check(_NAME, "pass", found=found, expected=_EXPECTED, command=command))
    return checks


_Failed = tuple[Iterable[str], str, str, str]


def _rail(pairs: Sequence[Pair], ends: Mapping[str, Nodes], places: Sequence[int], bad: Reasons) -> Iterable[_Failed]:
    """Return of each fault of a rail the hosts, what was found, the reason and the action."""
    both = [(pairs[at].client, pairs[at].server) for at in places]
    tried = grouped([*both, *((server, client) for client, server in both)])
    hosts = [host for host in ends if host in tried]
    works = {host for at in places if at not in bad for host in pairs[at][1:]}
    if len(bad) == len(places) > 1:
        # Two bad ports of three are enough.
        action = _SWITCH if len(hosts) > 3 else f"{_PORT}; or {_SWITCH}"
        yield hosts, _why(pairs, bad), f"none of {len(places)} pairs gets through", action
        return
    groups = [group for group in _groups(hosts, [pairs[at] for at in places if at not in bad]) if len(group) > 1]
    if len(groups) > 1:
        parts = " | ".join(host_list([host for host in hosts if host in group]) for group in groups)
        of = {host: number for number, group in enumerate(groups) for host in group}
        apart = [host for host in hosts if of.get(host)]
        yield apart, f"{parts}: {_why(pairs, bad)}", "ports get through within these groups only", _SWITCH
        ways = {at: {of.get(host) for host in pairs[at][1:]} for at in bad}
        bad = {at: why for at, why in bad.items() if len(ways[at]) == 1 or None in ways[at]}
    failures = [Failure(*pairs[at][1:], str(at), why) for at, why in bad.items()]
    odd, left = suspects(failures, hosts, tried=tried)
    if odd:
        own = {host: [at for at in bad if host in pairs[at][1:]] for host in odd}
        names = {host: pairs[own[host][0]].names(ends)[pairs[own[host][0]].server == host] for host in odd}
        texts = some_of([f"{names[host]} with {len(own[host])} of {len(tried[host])}" for host in odd], _MAX_NAMED)
        found = f"{'; '.join(texts)}: {_why(pairs, {at: bad[at] for ats in own.values() for at in ats})}"
        yield odd, found, "a port fails with most of its partners", _PORT
    for fine, kept in grouped((works.issuperset(each[:2]), int(each.way)) for each in left).items():
        named = {host for at in kept for host in pairs[at][1:]}
        found = f"{_ways(pairs, ends, kept)}: {_why(pairs, {at: bad[at] for at in kept})}"
        reason = "both ports work with others" if fine else "one of both ports, or the way between them"
        yield [host for host in hosts if host in named], found, reason, _PATH if fine else _PORT


def _groups(hosts: Sequence[str], good: Iterable[Pair]) -> list[set[str]]:
    """Return the sets of hosts that pairs without a fault join, the largest first."""
    group_of = {host: {host} for host in hosts}
    for pair in good:
        one, other = sorted((group_of[pair.client], group_of[pair.server]), key=len)
        if one is not other:
            other |= one
            group_of.update(dict.fromkeys(one, other))
    return sorted({id(group): group for group in group_of.values()}.values(), key=len, reverse=True)


def _ways(pairs: Sequence[Pair], ends: Mapping[str, Nodes], places: Sequence[int]) -> str:
    return ", ".join(some_of([" -> ".join(pairs[at].names(ends)) for at in places], _MAX_NAMED))


def _why(pairs: Sequence[Pair], bad: Reasons) -> str:
    """Return the reasons, each with the first pair that has it."""
    whys = grouped((why, pairs[at]) for at, why in bad.items())
    return "; ".join(some_of([f"{why} ({each[0].client} -> {each[0].server})" for why, each in whys.items()], 3))
