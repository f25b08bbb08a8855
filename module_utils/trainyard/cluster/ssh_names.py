# SPDX-License-Identifier: Apache-2.0
"""The names that a node's host certificate vouches for, and the hosts that clients let the authority vouch for.

A node's own word is no proof of a name: what it says of itself is taken where the inventory gives it that name, or
where it is an address that nobody else has. Names are compared without regard to case, addresses as addresses.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from ..findings.findings import Finding
from .hosts import is_inside, parse_address
from .ssh_mesh import MeshNode

_EXPECTED = "names that the inventory gives this node, and addresses that no other node has"


def _same(name: str) -> str:
    """Return the form in which names are compared."""
    address = parse_address(name)
    return name.lower() if address is None else str(address)


def given_names(name: str, connect: str, extra: Sequence[str]) -> tuple[str, ...]:
    """Return the names that the inventory gives a node; a loopback address leads to no node."""
    address = parse_address(connect)
    outer = [] if address is not None and address.is_loopback else [connect]
    return tuple(dict.fromkeys(each for each in (name, *outer, *extra) if each))


def _claims(node: MeshNode, given: Sequence[str], networks: Sequence[str]) -> dict[str, bool]:
    """Return what a node says of itself beyond `given`, and whether other nodes need it to be reached.

    Bridges of container engines, whose addresses every node holds, are none of them.
    """
    held = [address for address in node.addresses if any(is_inside(address, network) for network in networks)]
    by_default = not networks and not any(parse_address(name) for name in given)
    claims = {node.default_address: by_default, **dict.fromkeys(held, True), node.hostname: True}
    known = {_same(name) for name in given}
    return {name: needed for name, needed in claims.items() if name and _same(name) not in known}


def _refusal(name: str, given: Sequence[str], holder: str) -> str:
    """Say why a node gets no certificate for a name that it gives itself; "" when it does."""
    if holder:
        return f"{name}, which belongs to {holder}"
    if parse_address(name) is None and name.lower().partition(".")[0] not in _labels(given):
        return f"{name}, as which only the node itself knows it"
    return ""


def _labels(given: Iterable[str]) -> set[str]:
    return {name.lower().partition(".")[0] for name in given if parse_address(name) is None}


def principals(
    nodes: Sequence[MeshNode],
    networks: Sequence[str],
    inventory: Mapping[str, Sequence[str]],
    certified: Mapping[str, str],
) -> tuple[dict[str, tuple[str, ...]], list[Finding]]:
    """Return names and addresses for each node's host certificate, and what is wrong with those nodes claim.

    `inventory` has the names of all its hosts; `certified` maps names in the certificates of nodes that are not in this
    run to those nodes.
    """
    claims = {node.name: _claims(node, inventory[node.name], networks) for node in nodes}
    counts = Counter(_same(name) for mine in claims.values() for name in mine)
    holders = {_same(name): node for name, node in certified.items()}
    holders.update({_same(name): host for host, names in inventory.items() for name in names})
    wanted, findings = {}, []
    for host, mine in claims.items():
        accepted = list(inventory[host])
        for name, needed in mine.items():
            refusal = _refusal(name, inventory[host], holders.get(_same(name), ""))
            shared = counts[_same(name)] > 1
            if refusal or (shared and needed):
                findings.append(
                    Finding(
                        host=host,
                        check="name for the certificate",
                        found=refusal or f"{name}, which other nodes claim as well",
                        expected=_EXPECTED,
                        action=(
                            "correct the node or the inventory; a name that is right belongs into "
                            "ssh_mesh_extra_principals, a node that has left into ssh_mesh_revoked"
                        ),
                    )
                )
            elif not shared and (parse_address(name) or name.lower() in _labels(inventory[host])):
                # Its own name within a domain that only it knows is left out: whom it is in there nobody has said.
                accepted.append(name)
        wanted[host] = tuple(dict.fromkeys(accepted))
    return wanted, findings


def _patterns(name: str) -> list[str]:
    """Return patterns that a name fits, and those of the nodes that may come after it."""
    address = parse_address(name)
    if address is not None:
        mark = "." if address.version == 4 else ":"
        return [f"{name.rpartition(mark)[0]}{mark}*"]
    label, dot, domain = name.partition(".")
    if label.isdigit():
        return [name]
    shapes = [re.sub("[0-9]", "?", label)]
    number = re.search(r"([0-9]+)[^0-9]*$", label)
    # gpu9 is followed by gpu10, gpu09 is not followed by gpu010.
    if number and not number[1].startswith("0"):
        place = number.end(1)
        shapes.append(shapes[0][:place] + "?" + shapes[0][place:])
    return [f"{shape}{dot}{domain}" for shape in shapes] + (shapes if dot else [])


def host_patterns(names: Iterable[str]) -> list[str]:
    """Return for which hosts clients trust the authority, as patterns of ssh's known hosts.

    Digits stand for any digit's place, so that the next node of a numbered row, or of a network, changes nothing on the
    nodes that are there: gpu-07 gives gpu-??, 10.0.0.7 gives 10.0.0.*.
    """
    return sorted({pattern for name in names for pattern in _patterns(name)})
