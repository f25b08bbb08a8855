# SPDX-License-Identifier: Apache-2.0
"""Names, addresses, user and limits of a cluster's nodes, judged together before any node is touched.

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
# Names that every system has for itself, and can therefore name no node; so has it `localhost.*` and `*.localhost`.
_SYSTEMS_OWN = re.compile(
    r"(.*\.)?localhost|localhost[46]?(\..*)?|ip6-(localhost|loopback|localnet|mcastprefix|allnodes|allrouters)|"
    r"broadcasthost",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Node:
    """What one node said of itself, with its inventory name and the address that the inventory gives it."""

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
class Wanted:
    """What every node shall be like."""

    user: str
    uid: int
    group: str
    gid: int
    network: str
    memlock: Limit
    nofile: int
    sets_clock: bool = False


@dataclass(frozen=True)
class Judgement:
    """What follows from all nodes together."""

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
    """Tell whether a name can stand in /etc/hosts for a node: one word, and none that a system has for itself."""
    return bool(_HOST_NAME.fullmatch(name)) and not _SYSTEMS_OWN.fullmatch(name)


def inventory_findings(names: Iterable[str]) -> list[Finding]:
    """Find inventory names that are neither names for /etc/hosts nor addresses, which it does not need."""
    return [
        Finding(
            "name in the inventory",
            repr(name),
            "a name that other nodes can use for this one, of letters, digits and . _ -; not localhost",
            (
                "give the host another name in the inventory, and its address as ansible_host; or leave users, names "
                "and ssh of the system alone (trainyard_manage_system: false)"
            ),
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
    """Write a limit for people."""
    if limit is None:
        return "unlimited"
    return f"{limit // 1024} KiB" if name == "memlock" else str(limit)


def node_address(node: Node, network: str) -> tuple[str, Finding | None]:
    """Choose the address under which the other nodes shall know this one.

    With a network: the node's address on it. Without: the address that the inventory connects to, when the node holds
    it; for a name or a loopback address in the inventory the address of the node's default route.
    """
    declared = parse_address(node.connect)
    if network:
        inside = [text for text in node.addresses if is_inside(text, network)]
        if inside:
            return (node.connect if node.connect in inside else inside[0]), None
        return "", Finding(
            "address on the cluster's network",
            f"addresses {', '.join(node.addresses) or 'none'}",
            f"an address in {network}",
            "correct trainyard_network (or node_baseline_network), or give the node an address there",
            host=node.name,
        )
    if declared is not None and not declared.is_loopback:
        if str(declared) in node.addresses:
            return str(declared), None
        return "", Finding(
            "address of the node",
            f"{declared} in the inventory, {', '.join(node.addresses)} on the node",
            "an address that the node itself holds (behind NAT the other nodes may not reach the outer one)",
            "set trainyard_network to the network that the nodes share",
            host=node.name,
        )
    if node.default_address:
        return node.default_address, None
    return "", Finding(
        "address of the node",
        f"{node.connect!r} in the inventory and no default route on the node",
        "an address",
        "set trainyard_network to the network that the nodes share",
        host=node.name,
    )


def is_inside(address: str, network: str) -> bool:
    """Tell whether a text is an address inside a network (CIDR). Raises ValueError for a bad network."""
    parsed = parse_address(address)
    net = ipaddress.ip_network(network, strict=False)
    return parsed is not None and parsed.version == net.version and parsed in net


def node_names(node: Node) -> tuple[str, ...]:
    """Names that /etc/hosts gives a node: its inventory name and its kernel host name, no addresses."""
    names = [name for name in (node.name, node.hostname) if name and parse_address(name) is None]
    return tuple(dict.fromkeys(names))


def name_findings(nodes: Sequence[Node]) -> list[Finding]:
    """Find names that no node can have, and kernel host names that are shared or the inventory name of another node."""
    findings = inventory_findings(node.name for node in nodes)
    holders: dict[str, list[str]] = defaultdict(list)
    for node in nodes:
        holders[node.hostname.lower()].append(node.name)
    duplicates = {name: hosts for name, hosts in holders.items() if len(hosts) > 1}
    if duplicates:
        found = "; ".join(f"{name!r} on {', '.join(hosts)}" for name, hosts in sorted(duplicates.items()))
        findings.append(
            Finding(
                "kernel host names",
                found,
                "a different host name on every node (frameworks count ranks by it)",
                "on all but one of them: hostnamectl set-hostname NAME",
            )
        )
    by_inventory = {node.name.lower(): node.name for node in nodes}
    for node in nodes:
        name = node.hostname.lower()
        if not can_name_a_node(node.hostname):
            findings.append(
                Finding(
                    "kernel host name",
                    repr(node.hostname),
                    "a name that other nodes can use for this one",
                    "hostnamectl set-hostname NAME",
                    host=node.name,
                )
            )
        elif by_inventory.get(name, node.name) != node.name:
            findings.append(
                Finding(
                    "kernel host name",
                    f"{node.hostname!r}, which the inventory calls another node",
                    "one name for one machine",
                    "correct the inventory, or hostnamectl set-hostname NAME",
                    host=node.name,
                )
            )
    return findings


def user_findings(node: Node, wanted: Wanted) -> list[Finding]:
    """Find a training user that is there with other numbers, and numbers that others hold."""

    def finding(check: str, found: str, expected: str, action: str) -> Finding:
        return Finding(check, found, expected, action, host=node.name)

    findings = []
    other_number = "choose a number that is free on all nodes (trainyard_uid), or change what is there"
    if node.user is not None:
        if node.user["uid"] != wanted.uid:
            findings.append(
                finding(
                    check="uid of the training user",
                    found=f"{wanted.user} has uid {node.user['uid']}",
                    expected=f"uid {wanted.uid}, the same on all nodes",
                    action=other_number,
                )
            )
        if node.user["gid"] != wanted.gid:
            findings.append(
                finding(
                    check="gid of the training user",
                    found=f"{wanted.user} has gid {node.user['gid']}",
                    expected=f"gid {wanted.gid}, the same on all nodes",
                    action=other_number.replace("trainyard_uid", "node_baseline_gid"),
                )
            )
    if node.uid_owner not in ("", wanted.user):
        findings.append(
            finding(
                check="uid of the training user",
                found=f"uid {wanted.uid} belongs to {node.uid_owner}",
                expected=f"uid {wanted.uid} free for {wanted.user}",
                action=other_number,
            )
        )
    if node.group_gid is not None and node.group_gid != wanted.gid:
        findings.append(
            finding(
                check="group of the training user",
                found=f"group {wanted.group} has gid {node.group_gid}",
                expected=f"gid {wanted.gid}",
                action=other_number.replace("trainyard_uid", "node_baseline_gid"),
            )
        )
    if node.user is None and node.gid_owner not in ("", wanted.group):
        findings.append(
            finding(
                check="group of the training user",
                found=f"gid {wanted.gid} belongs to group {node.gid_owner}",
                expected=f"gid {wanted.gid} free for group {wanted.group}",
                action=other_number.replace("trainyard_uid", "node_baseline_gid"),
            )
        )
    return findings


def reachable_limit(wanted: Limit, hard: Limit, can_raise: bool) -> Limit:
    """Return the limit that can be had: the wanted one, or the hard limit where that may not be raised.

    A pam_limits line above an unraisable hard limit would refuse every session of the user, so it is never written.
    """
    if can_raise or hard is None:
        return wanted
    return hard if wanted is None else min(wanted, hard)


def judge(nodes: Sequence[Node], wanted: Wanted) -> Judgement:
    """Judge all nodes together: every finding of every node, the lines of the hosts file, the limits of each node."""
    findings = name_findings(nodes)
    if wanted.user == "root" or wanted.uid == 0:
        findings.append(
            Finding(
                "training user",
                f"{wanted.user} with uid {wanted.uid}",
                "an ordinary user",
                "set trainyard_user and trainyard_uid to a user of its own for training",
            )
        )
    entries = []
    limits: dict[str, dict[str, Limit]] = {}
    exceptions: dict[str, list[str]] = defaultdict(list)
    holders: dict[str, list[str]] = defaultdict(list)
    for node in nodes:
        findings += user_findings(node, wanted)
        address, finding = node_address(node, wanted.network)
        if finding:
            findings.append(finding)
        else:
            entries.append(Entry(address, node_names(node)))
            holders[address].append(node.name)
        if node.nr_open is not None and wanted.nofile > node.nr_open:
            findings.append(
                Finding(
                    "open files",
                    f"fs.nr_open of the kernel is {node.nr_open}",
                    f"at least node_baseline_nofile, {wanted.nofile}",
                    "lower node_baseline_nofile or raise fs.nr_open",
                    host=node.name,
                )
            )
        limits[node.name] = {}
        for name, value in (("memlock", wanted.memlock), ("nofile", wanted.nofile)):
            limit = reachable_limit(value, node.hard_limits[name], node.can_raise_limits)
            limits[node.name][name] = limit
            if limit != value:
                exceptions[
                    f"{name} stays at {describe_limit(name, limit)} instead of {describe_limit(name, value)}: "
                    f"{f'inside a container ({node.container})' if node.container else 'here'} limits cannot be raised "
                    "(no CAP_SYS_RESOURCE); raise them where the container is started"
                ].append(node.name)
        if node.container and wanted.sets_clock:
            exceptions[
                f"inside a container ({node.container}) the clock belongs to the machine that runs it: no time service "
                "is installed or started, the clocks are only measured"
            ].append(node.name)
    findings += [
        Finding(
            "address of the node",
            f"{address} is the address of {', '.join(names)}",
            "one node per address",
            "correct the inventory or trainyard_network",
        )
        for address, names in holders.items()
        if len(names) > 1
    ]
    return Judgement(
        tuple(entries),
        limits,
        tuple(findings),
        tuple(f"{host_list(hosts)}: {text}" for text, hosts in exceptions.items()),
    )
