# SPDX-License-Identifier: Apache-2.0
"""Networks of one node: interfaces, RDMA ports, and what a job says about them to NCCL and Gloo.

Pure parsing and choosing. Speeds are in Mb/s, rates in Gb/s, as the kernel prints them. Grammar of the NCCL
variables: NCCL's environment guide (a leading `=` stands once, before the whole list, and means exact match).
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, Union

from ..base.findings import Finding


class Interface(TypedDict):
    """One network interface; kind is physical, bridge, bond, virtual or loopback."""

    name: str
    up: bool
    state: str
    mtu: int | None
    mac: str | None
    kind: str
    speed_mbps: int | None
    addresses: list[str]


class RdmaPort(TypedDict):
    """One port of an RDMA device; active means that it can carry traffic now."""

    device: str
    port: int
    state: str | None
    physical_state: str | None
    rate_gbps: float | None
    link_layer: str | None
    netdev: str | None
    active: bool


class Networks(TypedDict):
    """The networks of one node; nccl_conf lists files that override a job's environment silently."""

    interfaces: list[Interface]
    rdma: list[RdmaPort]
    nccl_conf: list[str]
    nccl_settings: dict[str, str]
    problems: list[str]


class SelectionError(ValueError):
    """No single interface and address of the node fits the requested network.

    `finding.check` is `network`, or `interface` where the one that was meant leads to no other machine.
    """

    def __init__(self, found: str, expected: str, action: str, check: str = "network") -> None:
        """Keep the explanation as a finding, of no host yet."""
        super().__init__(f"found {found}; expected {expected}; {action}")
        self.finding = Finding(check, found, expected, action)


# Networks that container engines and hypervisors make for guests of their own machine, and the ends of cables to these.
# Not every bridge: that of a hypervisor's host (br0, vmbr0) often carries the machine's own address to the others.
_TO_GUESTS = re.compile(
    r"(?:docker|virbr|lxcbr|lxdbr|podman|cni|vnet)\d*|docker_gwbridge|virbr\d+-nic|cni-.+|veth.*|br-[0-9a-f]{12}"
)
# What engines give to containers unless told otherwise; the same on every machine, so never a way between machines.
_ENGINE_NETWORKS = tuple(ipaddress.ip_network(network) for network in ("172.17.0.0/16", "10.88.0.0/16"))

_WHOLE_NAMES = ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
_FORM = re.compile(r"\^?=?")
_RATE = re.compile(r"^\s*(\d{1,6}(?:\.\d{1,3})?)\s*Gb/sec\b")
_STATE = re.compile(r"^\s*\d+:\s*(\S+)\s*$")
# Representors of virtual functions and sub-functions share the device of the real port.
_REPRESENTOR = re.compile(r"^(c\d+)?pf\d+(vf|sf)\d+$")


def parse_rate(text: str) -> float | None:
    """Return 400.0 for `400 Gb/sec (4X NDR)`; None where the kernel says nothing readable."""
    match = _RATE.match(text)
    return float(match.group(1)) if match else None


def parse_state(text: str) -> str | None:
    """Return ACTIVE for `4: ACTIVE`, LinkUp for `5: LinkUp`."""
    match = _STATE.match(text)
    return match.group(1) if match else None


def is_representor(phys_port_name: str) -> bool:
    """Tell whether a netdev's phys_port_name names a representor (pf0vf3), not the port itself."""
    return _REPRESENTOR.match(phys_port_name.strip()) is not None


def parse_ip_address(output: str) -> tuple[list[Interface], list[str]]:
    """Parse `ip -json address` into interfaces and problems; sysfs has the speed, and any kind but loopback."""
    try:
        records: Any = json.loads(output)
    except (ValueError, RecursionError) as error:
        return [], [f"`ip -json address` did not print JSON: {error}"]
    if not isinstance(records, list):
        return [], ["`ip -json address` did not print a list of interfaces"]
    interfaces: list[Interface] = []
    problems: list[str] = []
    for record in records:
        name = record.get("ifname") if isinstance(record, dict) else None
        if not isinstance(name, str):
            # iproute2 before 5.x prints empty records for interfaces that a filter left out.
            if record != {}:
                problems.append(f"`ip -json address` has a record without a name: {str(record)[:100]}")
            continue
        flags = record.get("flags")
        flags = flags if isinstance(flags, list) else []
        mtu, mac = record.get("mtu"), record.get("address")
        infos = record.get("addr_info")
        addresses = []
        for info in infos if isinstance(infos, list) else []:
            try:
                addresses.append(str(ipaddress.ip_interface(f"{info['local']}/{int(info['prefixlen'])}")))
            except (KeyError, TypeError, ValueError, OverflowError):
                if info:
                    problems.append(f"{name}: `ip -json address` has an unreadable address: {str(info)[:100]}")
        interfaces.append(
            {
                "name": name,
                "up": "UP" in flags and "LOWER_UP" in flags,
                "state": str(record.get("operstate", "unknown")).lower(),
                "mtu": mtu if isinstance(mtu, int) else None,
                "mac": mac if isinstance(mac, str) else None,
                "kind": "loopback" if "LOOPBACK" in flags else "virtual",
                "speed_mbps": None,
                "addresses": addresses,
            }
        )
    return interfaces, problems


_Address = Union[ipaddress.IPv4Interface, ipaddress.IPv6Interface]
_Match = tuple[Interface, _Address]


def leads_nowhere(name: str) -> str:
    """Say why an interface of this name reaches no other machine, by the names that engines give; "" where it may."""
    if name == "lo":
        return "loopback"
    return "for containers or virtual machines of this node" if _TO_GUESTS.fullmatch(name) else ""


def named_interfaces(value: str) -> list[str]:
    """Return the names in NCCL_SOCKET_IFNAME and its like; none where they are those to leave out (`^`)."""
    if value.startswith("^"):
        return []
    return [name for name in (part.strip() for part in value.removeprefix("=").split(",")) if name]


def chooses_none(variable: str, value: str, names: Sequence[str]) -> bool:
    """Return whether a variable such as NCCL_SOCKET_IFNAME chooses no interface out of `names`.

    For Gloo and TensorPipe each word is a whole name. NCCL and HCCL take beginnings of names, after `=` whole names,
    after `^` all other interfaces, and ignore a `:port`.
    """
    words = [word.strip() for word in value.split(",") if word.strip()]
    if variable in _WHOLE_NAMES:
        return any(word not in names for word in words)
    form = _FORM.match(value)[0]  # type: ignore[index]
    words = [word.partition(":")[0].strip() for word in value[len(form) :].split(",")]
    named = {
        name for name in names for word in words if word and (name == word if "=" in form else name.startswith(word))
    }
    return bool(value.strip()) and not (set(names) - {"lo"} - named if "^" in form else named)


def behind_nat(interfaces: Sequence[Interface], interface: str, address: str, host_address: str) -> str:
    """Say by what one sees that a container's address holds on its own machine only; "" where nothing says so.

    For a container, whose own end of a virtual cable this is: with host networking it would have the machine's
    interfaces. host_address is how Ansible reaches it. A name says nothing: it may stand for either address.
    """
    chosen = next((item for item in interfaces if item["name"] == interface), None)
    if chosen is None or chosen["kind"] != "virtual":
        return ""
    own = {str(known.ip) for item in interfaces for known in _addresses(item)}
    try:
        reached = str(ipaddress.ip_address(host_address))
    except ValueError:
        reached = ""
    if reached and reached not in own:
        return f"it is reached as {reached}, which it does not have"
    ip = ipaddress.ip_address(address)
    network = next((network for network in _ENGINE_NETWORKS if ip in network), None)
    return f"{network} is what engines give to containers on every machine" if network else ""


def _addresses(interface: Interface) -> list[_Address]:
    return [ipaddress.ip_interface(address) for address in interface["addresses"]]


def _described(interfaces: Sequence[Interface]) -> str:
    parts = [
        f"{interface['name']} {' '.join(interface['addresses'])}{'' if interface['up'] else ' (down)'}"
        for interface in interfaces
        if interface["addresses"] and interface["kind"] != "loopback"
    ]
    return "; ".join(parts) if parts else "no interface with an address"


def _of_interface(interfaces: Sequence[Interface], name: str) -> list[_Match]:
    expected = f"one address on interface {name}"
    interface = next((interface for interface in interfaces if interface["name"] == name), None)
    if interface is None:
        names = ", ".join(interface["name"] for interface in interfaces) or "none at all"
        action = "give job_network an interface that every node has, or a CIDR such as 10.77.0.0/24"
        raise SelectionError(f"no interface {name} (the node has {names})", expected, action)
    own = _addresses(interface)
    usable = [address for address in own if not address.ip.is_link_local]
    # InfiniBand without a source of addresses has 169.254.0.0/16, which is enough for a named interface: all nodes are
    # on one link. Those of IPv6 mean nothing without the name of the interface, which no launcher takes.
    usable = usable or [address for address in own if address.version == 4]
    # One family for all nodes: IPv4 wherever there is one.
    usable = [address for address in usable if address.version == 4] or usable
    if not usable:
        found = f"no address on {name} but link-local ones of IPv6 (the node has {_described(interfaces)})"
        action = "give the interface an address (169.254.0.0/16 will do), or set job_network to another network"
        raise SelectionError(found, expected, action)
    return [(interface, address) for address in usable]


_NO_OTHER = "give an interface of every node another address, and set job_network to its network"


def _of_network(interfaces: Sequence[Interface], network: str) -> list[_Match]:
    try:
        target = ipaddress.ip_network(network)
    except ValueError as error:
        expected = "a CIDR such as 10.77.0.0/24 or the name of an interface"
        raise SelectionError(f"job_network {network!r} ({error})", expected, "correct job_network") from None
    matches = [
        (interface, address)
        for interface in interfaces
        for address in _addresses(interface)
        if address.version == target.version and address.ip in target
    ]
    if not matches:
        action = "set job_network to a network that every node is on"
        raise SelectionError(_described(interfaces), f"an address in {target}", action)
    usable = [match for match in matches if match[1].version == 4 or not match[1].ip.is_link_local]
    if not usable:
        others = [address.network for interface, address in _with_networks(interfaces)]
        found = f"only link-local addresses of IPv6 in {target} (the node has {_described(interfaces)})"
        action = f"set job_network: {others[0]}" if others else _NO_OTHER
        raise SelectionError(found, "an address that programs can use without the name of its interface", action)
    return usable


def _with_networks(interfaces: Sequence[Interface]) -> list[_Match]:
    """Return the addresses by which a node may reach others: on links that are up, and not link-local."""
    return [
        (interface, address)
        for interface in interfaces
        for address in _addresses(interface)
        if interface["up"] and interface["kind"] not in ("loopback", "bridge") and not address.ip.is_link_local
    ]


def _of_host(interfaces: Sequence[Interface], host_address: str, alone: bool) -> list[_Match]:
    """Return the interface that owns the address by which Ansible reaches the node, or else its only network.

    A node that is `alone` in its job and has none, or several, takes the loopback interface.
    """
    everything = [(interface, address) for interface in interfaces for address in _addresses(interface)]
    local = host_address == "localhost"
    try:
        own = ipaddress.ip_address(host_address)
    except ValueError:
        own = None
    owners = [
        (interface, address)
        for interface, address in everything
        if address.ip == own or (local and address.ip.is_loopback and address.version == 4)
    ]
    if owners:
        return owners
    # A name, or an address that is translated on the way: take the node's only network. Bridges such as docker0 and
    # virbr0 lead to the node's own guests.
    candidates = _with_networks(interfaces)
    candidates = [match for match in candidates if not leads_nowhere(match[0]["name"])] or candidates
    candidates = [match for match in candidates if match[1].version == 4] or candidates
    if alone and len(candidates) != 1:
        loopback = [match for match in everything if match[1].ip.is_loopback]
        candidates = [match for match in loopback if match[1].version == 4][:1] or candidates
    if len(candidates) != 1:
        found = f"{_described(interfaces)}, none of which is the node's address in the inventory ({host_address})"
        action = "set job_network to a CIDR such as 10.77.0.0/24 or to the name of an interface"
        raise SelectionError(found, "one network to choose", action)
    return candidates


def select_interface(
    interfaces: Sequence[Interface], network: str, host_address: str, *, alone: bool = False
) -> tuple[str, str]:
    """Choose the interface and the address by which a node takes part in a job.

    network is a CIDR, an interface name, or empty: then it is the network of host_address, the address (or name) by
    which Ansible reaches the node. alone: the job has only this node, so the loopback interface will do.
    """
    network = network.strip()
    if not network:
        matches = _of_host(interfaces, host_address, alone)
    elif "/" in network:
        matches = _of_network(interfaces, network)
    else:
        matches = _of_interface(interfaces, network)
    # A link that is down carries nothing, and one to the node's own guests leads nowhere: neither makes the choice
    # ambiguous.
    matches = [match for match in matches if match[0]["up"]] or matches
    matches = [match for match in matches if not leads_nowhere(match[0]["name"])] or matches
    interface, address = matches[0]
    chosen = f"{interface['name']} {address}"
    if len(matches) > 1:
        listed = ", ".join(f"{interface['name']} {address}" for interface, address in matches)
        action = "set job_network to a CIDR that holds only one of them"
        expected = f"one address on {network or host_address}"
        raise SelectionError(f"{len(matches)} addresses ({listed})", expected, action)
    if not interface["up"]:
        action = "connect it or bring it up, or set job_network to another network"
        raise SelectionError(f"{chosen} is down (state {interface['state']})", "a link that is up", action)
    nowhere = "loopback" if interface["kind"] == "loopback" else leads_nowhere(interface["name"])
    if nowhere and not alone:
        by = f"job_network {network}" if network else f"the node's address in the inventory ({host_address})"
        found = f"{chosen} ({nowhere}), which no other node can reach, chosen by {by}"
        action = "set job_network to the network between the nodes"
        raise SelectionError(found, "an address that every node of the job reaches", action, check="interface")
    return interface["name"], str(address.ip)


def network_of(interfaces: Sequence[Interface], interface: str, address: str) -> str:
    """Return the network of an address that an interface has, as CIDR; "" when it has not."""
    own = [own for item in interfaces if item["name"] == interface for own in _addresses(item)]
    return next((str(item.network) for item in own if str(item.ip) == address), "")


def nccl_ib_hca(ports: Sequence[RdmaPort]) -> str:
    """Return NCCL_IB_HCA for the active ports, `=mlx5_1:1,mlx5_2:1`; empty where no port is active.

    InfiniBand and RoCE ports cannot talk to each other: where any InfiniBand port is active, only those are taken.
    """
    active = [port for port in ports if port["active"]]
    infiniband = [port for port in active if port["link_layer"] == "InfiniBand"]
    chosen = sorted(infiniband or active, key=lambda port: (natural_order(port["device"]), port["port"]))
    return "=" + ",".join(map(port_name, chosen)) if chosen else ""


def natural_order(name: str) -> tuple[tuple[int, int, str], ...]:
    """Return a sort key that puts mlx5_2 before mlx5_10."""
    return tuple(
        (0, int(part), "") if part.isascii() and part.isdecimal() else (1, 0, part)
        for part in re.split(r"([0-9]+)", name)
        if part
    )


def port_name(port: Mapping[str, Any]) -> str:
    """Return mlx5_0:1, as NCCL_IB_HCA names a port."""
    return f"{port['device']}:{port['port']}"


def parse_nccl_conf(text: str) -> dict[str, str]:
    """Parse nccl.conf: NAME=value per line, `#` starts a comment."""
    settings = {}
    for line in text.splitlines():
        name, equals, value = line.split("#", 1)[0].partition("=")
        if equals and name.strip():
            settings[name.strip()] = value.strip()
    return settings
