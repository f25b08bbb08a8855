# SPDX-License-Identifier: Apache-2.0
"""Names, addresses, user and limits of a cluster's nodes, checked together before any node is changed.

Memory and descriptor limits are in the units of getrlimit(2): bytes and descriptors, None for unlimited.
"""

from __future__ import annotations

import ipaddress
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Optional, Union

from ..base.findings import Finding, host_list

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
    """The facts of one node, and what the inventory gives it: its name, all of its names, and the address.

    `names` are in lower case (ssh_names.declared_names).
    """

    name: str
    names: frozenset[str]
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
        """Read the record that node_identity returned, with `name`, `names` and `connect` of the inventory added."""
        names = frozenset(str(name).lower() for name in data["names"] if parse_address(str(name)) is None)
        record = {**data, "names": names, "addresses": tuple(data["addresses"])}
        return cls(**{each.name: record[each.name] for each in fields(cls)})


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
    # Whether a time service was chosen, and the nodes with RDMA, which locks memory.
    sets_clock: bool = False
    rdma: frozenset[str] = frozenset()


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
    expected = "a name of letters, digits and . _ - that other nodes can use for this one; not localhost"
    action = (
        "give the host another name in the inventory, and its address as ansible_host; or do not manage the system "
        "(trainyard_manage_system: false)"
    )
    wrong = [name for name in names if parse_address(name) is None and not can_name_a_node(name)]
    return [Finding("name in the inventory", repr(name), expected, action) for name in wrong]


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
    check, action = "address of the node", "set trainyard_network to the network that the nodes share"
    if network:
        inside = [text for text in node.addresses if is_inside(text, network)]
        if inside:
            return (node.connect if node.connect in inside else inside[0]), None
        check = "address on the cluster's network"
        found, expected = f"addresses {', '.join(node.addresses) or 'none'}", f"an address in {network}"
        action = "correct trainyard_network (or node_baseline_network), or give the node an address there"
    elif declared is not None and not declared.is_loopback:
        if str(declared) in node.addresses:
            return str(declared), None
        found = f"{declared} in the inventory, {', '.join(node.addresses)} on the node"
        expected = "an address that the node itself holds (behind NAT, other nodes may not reach the outer one)"
    elif node.default_address:
        return node.default_address, None
    else:
        found, expected = f"{node.connect!r} in the inventory and no default route on the node", "an address"
    return "", Finding(check, found, expected, action, host=node.name)


def is_inside(address: str, network: str) -> bool:
    """Tell whether a text is an address inside a network (CIDR). Raises ValueError for a bad network."""
    parsed = parse_address(address)
    net = ipaddress.ip_network(network, strict=False)
    return parsed is not None and parsed.version == net.version and parsed in net


def node_names(node: Node) -> tuple[str, ...]:
    """Return the names that /etc/hosts gives a node: those of the inventory.

    The kernel's name is one of them only if the inventory gives it, too: root on a node can claim that of a mirror.
    """
    kernel = [node.hostname] if node.hostname.lower() in node.names else []
    return tuple(dict.fromkeys(name for name in (node.name, *kernel) if parse_address(name) is None))


def name_findings(nodes: Sequence[Node]) -> list[Finding]:
    """Find names that no node can have, and kernel host names other than those of the inventory.

    A kernel's name may have a domain that the inventory leaves out. Nodes that the inventory names by their addresses
    may have any name that no other node has.
    """
    findings = inventory_findings(node.name for node in nodes)
    declared = {name: node.name for node in nodes for name in node.names}
    nameless: dict[str, list[str]] = defaultdict(list)
    for node in nodes:
        kernel = node.hostname.lower()
        known = {kernel, kernel.partition(".")[0]} & node.names
        rename = f"hostnamectl set-hostname {node.name if node.names else 'NAME'}"
        found, expected = repr(node.hostname), "the name that the inventory gives this node"
        action = f"{rename}, or give the host that name in the inventory or in its ssh_mesh_extra_principals"
        if not can_name_a_node(node.hostname):
            expected, action = "a name that other nodes can use for this one", rename
        elif declared.get(kernel, node.name) != node.name:
            found, action = f"{found}, which the inventory calls another node", f"correct the inventory, or {rename}"
            expected = "one name for one machine"
        elif known:
            continue
        elif not node.names:
            nameless[kernel].append(node.name)
            continue
        findings.append(Finding("kernel host name", found, expected, action, host=node.name))
    expected = "a different host name on every node (frameworks count ranks by it)"
    return findings + [
        Finding("kernel host name", repr(name), expected, "on all but one of them: hostnamectl set-hostname NAME", host)
        for name, hosts in nameless.items()
        if len(hosts) > 1
        for host in hosts
    ]


def user_findings(node: Node, settings: ClusterSettings) -> list[Finding]:
    """Find a training user with other numbers, and numbers that another user or group holds."""
    user, uid, group, gid = settings.user, settings.uid, settings.group, settings.gid
    # The last item is the number that the user or the group has there.
    problems: list[tuple[str, str, str, int | None]] = []
    if node.user is not None and node.user["uid"] != uid:
        own = node.user["uid"]
        problems.append(("uid", f"{user} has uid {own}", f"uid {uid}, the same on all nodes", own))
    if node.user is not None and node.user["gid"] != gid:
        own = node.user["gid"]
        problems.append(("gid", f"{user} has gid {own}", f"gid {gid}, the same on all nodes", own))
    if node.uid_owner not in ("", user):
        problems.append(("uid", f"uid {uid} belongs to {node.uid_owner}", f"uid {uid} free for {user}", None))
    if node.group_gid is not None and node.group_gid != gid:
        problems.append(("group", f"group {group} has gid {node.group_gid}", f"gid {gid}", node.group_gid))
    if node.user is None and node.gid_owner not in ("", group):
        found, expected = f"gid {gid} belongs to group {node.gid_owner}", f"gid {gid} free for group {group}"
        problems.append(("group", found, expected, None))
    findings = []
    for kind, found, expected, number in problems:
        variable = "trainyard_uid" if kind == "uid" else "node_baseline_gid"
        choice = f"choose a number that is free on all nodes ({variable})"
        if number is not None:
            choice = f"set {variable}: {number}, if nobody else has it on any node"
        action = f"{choice}, or change the existing one"
        findings.append(Finding(f"{kind} of the training user", found, expected, action, host=node.name))
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
    """Return which settings a node cannot have, mostly because it is a container."""
    container = f"inside a container ({node.container})"
    texts = []
    for name, limit in _limits(node, settings).items():
        requested = getattr(settings, name)
        # Without RDMA nothing needs the default, which is unlimited.
        unneeded = name == "memlock" and requested is None and node.name not in settings.rdma
        if limit != requested and not unneeded:
            texts.append(
                f"{name} stays at {describe_limit(name, limit)} instead of {describe_limit(name, requested)}: "
                f"{container if node.container else 'here'} limits cannot be raised (no CAP_SYS_RESOURCE); raise them "
                "where the container is started"
            )
    if node.container and settings.sets_clock:
        texts.append(
            f"{container} the clock belongs to the machine that runs it: no time service is installed or started, the "
            "clocks are only measured"
        )
    return texts
