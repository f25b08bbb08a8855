# SPDX-License-Identifier: Apache-2.0
"""The names in a node's host certificate, and the hosts for which clients trust the authority.

Both come from the inventory alone, as root on a node could claim any name. Case does not matter in names, and addresses
are compared as addresses.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..base.findings import Finding
from .hosts import is_inside, parse_address
from .ssh_mesh import PRINCIPAL, MeshNode


def _same(name: str) -> str:
    """Return a name in the form in which names are compared."""
    address = parse_address(name)
    return name.lower() if address is None else str(address)


def declared_names(inventory: Sequence[Mapping[str, Any]]) -> dict[str, tuple[str, ...]]:
    """Return by host the names that the inventory gives it, and their first labels where no other host has these.

    Each host of `inventory` has its `name`, and perhaps `ansible_host` and `ssh_mesh_extra_principals`. Loopback
    addresses are left out, as they lead to no other node.
    """
    declared = {host["name"]: _declared(host) for host in inventory}
    labels = {host: {_label(name) for name in names} - {""} for host, names in declared.items()}
    holders = Counter(
        name for host, names in declared.items() for name in {*map(_same, names), *map(_same, labels[host])}
    )
    return {
        host: (*names, *sorted(label for label in labels[host] - {*names} if holders[_same(label)] == 1))
        for host, names in declared.items()
    }


# Host variables that also name a host.
NAMED_BY = ("ansible_host", "ssh_mesh_extra_principals")


def _declared(host: Mapping[str, Any]) -> tuple[str, ...]:
    names = [host["name"], host.get("ansible_host") or "", *(host.get("ssh_mesh_extra_principals") or [])]
    addresses = {name: parse_address(name) for name in names if name}
    return tuple(name for name, address in addresses.items() if address is None or not address.is_loopback)


def _label(name: str) -> str:
    """Return the first label of a name within a domain, "" for any other name."""
    label, dot, _ = name.partition(".")
    return label if dot and parse_address(name) is None else ""


def declared_addresses(names: Mapping[str, Sequence[str]]) -> list[str]:
    """Return all addresses among the declared names."""
    return sorted({_same(name) for mine in names.values() for name in mine if parse_address(name) is not None})


def undeclared_addresses(
    nodes: Sequence[MeshNode], networks: Sequence[str], names: Mapping[str, Sequence[str]]
) -> list[Finding]:
    """Find addresses by which others may reach a node and that the inventory does not give it.

    These are its addresses on `networks`. Without networks, it is the address of the default route of a node without a
    declared address.
    """
    expected = "an address that the inventory gives the node, if ssh or mpirun is to reach it there"
    findings = []
    for node in nodes:
        declared = {_same(name) for name in names[node.name]}
        has_address = any(parse_address(name) for name in declared)
        held = [address for address in node.addresses if any(is_inside(address, network) for network in networks)]
        if not networks and not has_address:
            held = [node.default_address] if node.default_address else []
        # Another ansible_host would take the name of the present one from the node.
        action = "if it is right, add it to ssh_mesh_extra_principals of the node"
        action += "" if has_address else ", or set it as ansible_host"
        findings += [
            Finding("address without a certificate", address, expected, action, host=node.name)
            for address in dict.fromkeys(held)
            if _same(address) not in declared
        ]
    return findings


def user_options(networks: Sequence[str], names: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return the options of the training user's certificates, as ssh-keygen shows them: a terminal, no forwarding.

    With `networks`, sshd accepts them from there and from declared addresses only. Without networks, the source
    addresses of nodes are unknown: behind NAT they differ from the inventory's.
    """
    if not networks:
        return ("permit-pty",)
    inside = [ipaddress.ip_network(network, strict=False) for network in networks]
    outside = [
        ipaddress.ip_network(address)
        for address in declared_addresses(names)
        if not any(ipaddress.ip_address(address) in network for network in inside)
    ]
    return ("permit-pty", f"source-address {','.join(map(str, [*inside, *outside]))}")


def host_patterns(names: Iterable[str]) -> list[str]:
    """Return the hosts for which clients trust the authority: exactly these names, as known_hosts takes them."""
    return sorted({name for name in names if PRINCIPAL.fullmatch(name)})
