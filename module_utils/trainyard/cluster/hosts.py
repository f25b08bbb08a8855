# SPDX-License-Identifier: Apache-2.0
"""Names, addresses, user and limits of a cluster's nodes, checked together before any node is changed.

Memory and descriptor limits are in the units of getrlimit(2): bytes and descriptors, None for unlimited.
"""

from __future__ import annotations

import ipaddress
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional, Union

from ..findings.findings import Finding, host_list

IPAddress = Union[ipaddress.IPv4Address, ipaddress.IPv6Address]
Limit = Optional[int]

_HOST_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?")
# Names that every system uses for itself, so they cannot name a node; so are `localhost.*` and `*.localhost`.
_RESERVED_NAME = re.compile(
    r"(.*\.)?localhost|localhost[46]?(\..*)?|ip6-(localhost|loopback|localnet|mcastprefix|allnodes|allrouters)|"
    r"broadcasthost",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Node:
    """The facts of one node, with its inventory name and the address that the inventory gives it."""

    name: str
    hostname: str
    connect: str
    addresses: tuple[str, ...]
    default_address: str
    user: Mapping[str, Any] | None
    uid_owner: str
    gid_owner: str
    group_gid: int | None
    hard_limits: Mapping[str, Limit]
    can_raise_limits: bool
    nr_open: int | None
    container: str

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Node:
        """Read the record that node_identity returned, with `name` and `connect` added."""
        return cls(
            name=str(data["name"]),
            hostname=str(data["hostname"]),
            connect=str(data["connect"]),
            addresses=tuple(str(address) for address in data["addresses"]),
            default_address=str(data["default_address"]),
            user=data["user"],
            uid_owner=str(data["uid_owner"]),
            gid_owner=str(data["gid_owner"]),
            group_gid=data["group_gid"],
            hard_limits=dict(data["hard_limits"]),
            can_raise_limits=bool(data["can_raise_limits"]),
            nr_open=data["nr_open"],
            container=str(data["container"]),
        )


@dataclass(frozen=True)
class Entry:
    """One line of the cluster's block in /etc/hosts."""

    address: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class ClusterSettings:
    """The settings that all nodes share."""

    user: str
    uid: int
    group: str
    gid: int
    network: str
    memlock: Limit
    nofile: int
    sets_clock: bool = False


@dataclass(frozen=True)
class ClusterPlan:
    """The hosts file entries, the limits of each node, and the findings over all nodes.

    `exceptions` say which settings some nodes cannot have.
    """

    entries: tuple[Entry, ...]
    limits: Mapping[str, Mapping[str, Limit]]
    findings: tuple[Finding, ...]
    exceptions: tuple[str, ...]


def parse_address(text: str) -> IPAddress | None:
    """Return an IP address, None when the text is something else (a name, an empty text, a scoped address)."""
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def can_name_a_node(name: str) -> bool:
    """Tell whether a name can stand in /etc/hosts for a node: one word that no system uses for itself."""
    return bool(_HOST_NAME.fullmatch(name)) and not _RESERVED_NAME.fullmatch(name)


def inventory_findings(names: Iterable[str]) -> list[Finding]:
    """Find inventory names that /etc/hosts cannot hold; addresses need no entry there."""
    return [
        Finding(
            "name in the inventory",
            repr(name),
            "a name of letters, digits and . _ - that other nodes can use for this one; not localhost",
            "give the host another name in the inventory, and its address as ansible_host; or do not manage the system "
            "(trainyard_manage_system: false)",
        )
        for name in names
        if parse_address(name) is None and not can_name_a_node(name)
    ]


def parse_memlock(text: str) -> Limit:
    """Read `unlimited` or a number of KiB, limits.conf's unit, into bytes. Raises ValueError for anything else."""
    if text == "unlimited":
        return None
    if not re.fullmatch(r"[0-9]{1,15}", text):
        raise ValueError(f"memlock is {text!r}; expected 'unlimited' or a number of KiB")
    return int(text) * 1024


def describe_limit(name: str, limit: Limit) -> str:
    """Return a limit as text for people."""
    if limit is None:
        return "unlimited"
    return f"{limit // 1024} KiB" if name == "memlock" else str(limit)


def node_address(node: Node, network: str) -> tuple[str, Finding | None]:
    """Choose the address under which the other nodes know this one.

    With a network, this is the node's address on it. Without one, it is the address in the inventory if the node holds
    it; if the inventory has a name or a loopback address, it is the address of the node's default route.
    """
    declared = parse_address(node.connect)
    share = "set trainyard_network to the network that the nodes share"
    if network:
        inside = [text for text in node.addresses if is_inside(text, network)]
        if inside:
            return (node.connect if node.connect in inside else inside[0]), None
        found = f"addresses {', '.join(node.addresses) or 'none'}"
        action = "correct trainyard_network (or node_baseline_network), or give the node an address there"
        return "", Finding(
            "address on the cluster's network", found, f"an address in {network}", action, host=node.name
        )
    if declared is not None and not declared.is_loopback:
        if str(declared) in node.addresses:
            return str(declared), None
        found = f"{declared} in the inventory, {', '.join(node.addresses)} on the node"
        expected = "an address that the node itself holds (behind NAT, other nodes may not reach the outer one)"
        return "", Finding("address of the node", found, expected, share, host=node.name)
    if node.default_address:
        return node.default_address, None
    found = f"{node.connect!r} in the inventory and no default route on the node"
    return "", Finding("address of the node", found, "an address", share, host=node.name)


def is_inside(address: str, network: str) -> bool:
    """Tell whether a text is an address inside a network (CIDR). Raises ValueError for a bad network."""
    parsed = parse_address(address)
    net = ipaddress.ip_network(network, strict=False)
    return parsed is not None and parsed.version == net.version and parsed in net


def node_names(node: Node) -> tuple[str, ...]:
    """Return the names that /etc/hosts gives a node: its inventory name and its kernel host name, no addresses."""
    names = [name for name in (node.name, node.hostname) if name and parse_address(name) is None]
    return tuple(dict.fromkeys(names))


def name_findings(nodes: Sequence[Node]) -> list[Finding]:
    """Find names that no node can have, and kernel host names that are shared or the inventory name of another node."""
    findings = inventory_findings(node.name for node in nodes)
    holders: dict[str, list[str]] = defaultdict(list)
    for node in nodes:
        holders[node.hostname.lower()].append(node.name)
    duplicates = {name: hosts for name, hosts in holders.items() if len(hosts) > 1}
    rename = "hostnamectl set-hostname NAME"
    if duplicates:
        found = "; ".join(f"{name!r} on {', '.join(hosts)}" for name, hosts in sorted(duplicates.items()))
        expected = "a different host name on every node (frameworks count ranks by it)"
        findings.append(Finding("kernel host names", found, expected, f"on all but one of them: {rename}"))
    by_inventory = {node.name.lower(): node.name for node in nodes}
    for node in nodes:
        if not can_name_a_node(node.hostname):
            found, expected, action = repr(node.hostname), "a name that other nodes can use for this one", rename
        elif by_inventory.get(node.hostname.lower(), node.name) != node.name:
            found, expected = f"{node.hostname!r}, which the inventory calls another node", "one name for one machine"
            action = f"correct the inventory, or {rename}"
        else:
            continue
        findings.append(Finding("kernel host name", found, expected, action, host=node.name))
    return findings


def user_findings(node: Node, settings: ClusterSettings) -> list[Finding]:
    """Find a training user with other numbers, and numbers that somebody else holds."""
    findings = []

    def add(kind: str, number: str, found: str, expected: str) -> None:
        action = f"choose a number that is free on all nodes ({number}), or change the existing one"
        findings.append(Finding(f"{kind} of the training user", found, expected, action, host=node.name))

    user, uid, group, gid = settings.user, settings.uid, settings.group, settings.gid
    if node.user is not None and node.user["uid"] != uid:
        add("uid", "trainyard_uid", f"{user} has uid {node.user['uid']}", f"uid {uid}, the same on all nodes")
    if node.user is not None and node.user["gid"] != gid:
        add("gid", "node_baseline_gid", f"{user} has gid {node.user['gid']}", f"gid {gid}, the same on all nodes")
    if node.uid_owner not in ("", user):
        add("uid", "trainyard_uid", f"uid {uid} belongs to {node.uid_owner}", f"uid {uid} free for {user}")
    if node.group_gid is not None and node.group_gid != gid:
        add("group", "node_baseline_gid", f"group {group} has gid {node.group_gid}", f"gid {gid}")
    if node.user is None and node.gid_owner not in ("", group):
        found = f"gid {gid} belongs to group {node.gid_owner}"
        add("group", "node_baseline_gid", found, f"gid {gid} free for group {group}")
    return findings


def reachable_limit(requested: Limit, hard: Limit, can_raise: bool) -> Limit:
    """Return the requested limit, or the hard limit if that is lower and cannot be raised.

    A pam_limits line above such a hard limit would end every session of the user, so it is never written.
    """
    if can_raise or hard is None:
        return requested
    return hard if requested is None else min(requested, hard)


def plan_cluster(nodes: Sequence[Node], settings: ClusterSettings) -> ClusterPlan:
    """Check all nodes together; return all findings, the lines of the hosts file and the limits of each node."""
    findings = name_findings(nodes)
    if settings.user == "root" or settings.uid == 0:
        found = f"{settings.user} with uid {settings.uid}"
        action = "set trainyard_user and trainyard_uid to a user of its own for training"
        findings.append(Finding("training user", found, "an ordinary user", action))
    entries = []
    exceptions: dict[str, list[str]] = defaultdict(list)
    holders: dict[str, list[str]] = defaultdict(list)
    for node in nodes:
        findings += user_findings(node, settings)
        address, finding = node_address(node, settings.network)
        if finding:
            findings.append(finding)
        else:
            entries.append(Entry(address, node_names(node)))
            holders[address].append(node.name)
        if node.nr_open is not None and settings.nofile > node.nr_open:
            found, expected = f"fs.nr_open is {node.nr_open}", f"at least node_baseline_nofile, {settings.nofile}"
            action = "lower node_baseline_nofile or raise fs.nr_open"
            findings.append(Finding("open files", found, expected, action, host=node.name))
        for text in _exceptions(node, settings):
            exceptions[text].append(node.name)
    for address, names in holders.items():
        if len(names) > 1:
            found = f"{address} is the address of {', '.join(names)}"
            action = "correct the inventory or trainyard_network"
            findings.append(Finding("address of the node", found, "one node per address", action))
    lines = tuple(f"{host_list(hosts)}: {text}" for text, hosts in exceptions.items())
    limits = {node.name: _limits(node, settings) for node in nodes}
    return ClusterPlan(tuple(entries), limits, tuple(findings), lines)


def _limits(node: Node, settings: ClusterSettings) -> dict[str, Limit]:
    return {
        name: reachable_limit(value, node.hard_limits[name], node.can_raise_limits)
        for name, value in (("memlock", settings.memlock), ("nofile", settings.nofile))
    }


def _exceptions(node: Node, settings: ClusterSettings) -> list[str]:
    """Return what a node cannot have, mostly because it is a container."""
    place = f"inside a container ({node.container})" if node.container else "here"
    texts = [
        f"{name} stays at {describe_limit(name, limit)} instead of {describe_limit(name, getattr(settings, name))}: "
        f"{place} limits cannot be raised (no CAP_SYS_RESOURCE); raise them where the container is started"
        for name, limit in _limits(node, settings).items()
        if limit != getattr(settings, name)
    ]
    if node.container and settings.sets_clock:
        texts.append(
            f"inside a container ({node.container}) the clock belongs to the machine that runs it: no time service is "
            "installed or started, the clocks are only measured"
        )
    return texts
