# SPDX-License-Identifier: Apache-2.0
"""Decide which unauthenticated connection of a head has to go, by the addresses that they come from.

Anybody on the network may connect to the head, and as fast as the network goes. So each address has places of its own,
and a newcomer takes the place of the oldest one from its own address. The addresses of the job's hosts have places
that no other address can take. A node may come from an address that the plan does not have: it has several, or there
is a router in between that translates addresses. Such addresses share places, as many as nodes are missing and some
more, and the address with the most gives way. The connections of authenticated nodes are not counted here.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Generic, TypeVar

Guest = TypeVar("Guest")
# Places of one address, and places of all addresses besides one for each.
PLACES, MORE = 8, 64
# Users of IPv6 get networks with 64 bits for hosts, so one machine may come from all addresses of one.
_HOST_BITS = 64


def _plain(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Return an address without its zone, and one of IPv4 as such. Raises ValueError for other text."""
    found = ipaddress.ip_address(address.partition("%")[0])
    return getattr(found, "ipv4_mapped", None) or found


def own_addresses(addresses: Iterable[str]) -> frozenset[str]:
    """Return the addresses of a job's hosts as source() returns them."""
    found = set()
    for address in addresses:
        try:
            found.add(str(_plain(address)))
        except ValueError:
            # A name instead of an address: its host comes as a stranger does.
            continue
    return frozenset(found)


def source(address: str, own: frozenset[str]) -> str:
    """Return what counts as one address: one of the job, else that of a stranger, or its whole network with IPv6."""
    found = _plain(address)
    if str(found) in own or found.version == 4:
        return str(found)
    return f"{ipaddress.IPv6Address(int(found) >> _HOST_BITS << _HOST_BITS)}/{_HOST_BITS}"


class Guests(Generic[Guest]):
    """The connections whose handshake goes on."""

    def __init__(self, addresses: Iterable[str] = ()) -> None:
        """Take the addresses of the job's hosts."""
        self._own = own_addresses(addresses)
        # By whether an address is the job's own: the guests of each address, the oldest first, and how many there are.
        self._guests: dict[bool, dict[str, dict[Guest, None]]] = {True: {}, False: {}}
        self._count = {True: 0, False: 0}
        self._source: dict[Guest, str] = {}

    def admit(self, guest: Guest, address: str, missing: int) -> Guest | None:
        """Give a newcomer a place while so many nodes are missing; return who has to go, which may be the newcomer.

        An address loses a guest to another one only if it still has at least as many afterwards.
        """
        where = source(address, self._own)
        own = where in self._own
        here, strangers = self._guests[own], 0 if own else missing
        theirs = here.get(where, {})
        goes = None
        if len(theirs) >= PLACES + strangers:
            goes = next(iter(theirs))
        elif self._count[own] >= MORE + (len(self._own) if own else missing):
            most = max(here.values(), key=len)
            crowd = most if len(most) > len(theirs) + 1 else theirs
            if not crowd:
                return guest
            goes = next(iter(crowd))
        if goes is not None:
            self.leave(goes)
        here.setdefault(where, {})[guest] = None
        self._source[guest] = where
        self._count[own] += 1
        return goes

    def leave(self, guest: Guest) -> None:
        """Free the place of a guest, if it has one."""
        where = self._source.pop(guest, None)
        if where is None:
            return
        own = where in self._own
        here = self._guests[own]
        del here[where][guest]
        self._count[own] -= 1
        if not here[where]:
            del here[where]
