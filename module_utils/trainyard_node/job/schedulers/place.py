# SPDX-License-Identifier: Apache-2.0
"""Choose where the hosts of an allocation meet."""

from __future__ import annotations

import os
import secrets
import socket
from pathlib import Path
from typing import NamedTuple

from ....trainyard.slurm.allocation import POD_PORT, PODS, TOKEN_FILE, Allocation, expand, of_kubernetes, of_slurm

# The variable with the address, the port and the token by which the hosts of an allocation meet. No rank gets it.
MEETING = "TRAINYARD_MEETING"
# The variable with the address of a pod.
POD_ADDRESS = "TRAINYARD_ADDRESS"
_DISCARD_PORT = 9


class Place(NamedTuple):
    """Where this host meets the others of its allocation: address and port of the first one, and their token.

    As many as are `needed` come within `patience_s` of each other.
    """

    allocation: Allocation
    address: str
    port: int
    token: str
    needed: int = 0
    patience_s: float = 0.0


def in_pod() -> bool:
    """Return whether this is a pod."""
    return PODS in os.environ


def own_place() -> Place:
    """Return where this host meets the others."""
    if not in_pod():
        address, port, token = os.environ.pop(MEETING).split()
        return Place(of_slurm(os.environ), address, int(port), token)
    allocation = of_kubernetes(os.environ)
    _, name, needed, patience_s = os.environ[PODS].split()
    # The first one listens on its own address; the others look its name up each time.
    address = f"{allocation.hosts[0]}.{name}" if allocation.place else os.environ[POD_ADDRESS]
    # The cluster may find room for one after the other.
    return Place(allocation, address, POD_PORT, Path(TOKEN_FILE).read_text().strip(), int(needed), float(patience_s))


def meeting() -> str:
    """Return an address of this host that the next one of Slurm's reaches, a free port there, and a new token."""
    address, hosts = "127.0.0.1", expand(os.environ["SLURM_JOB_NODELIST"])
    if len(hosts) > 1:
        family, kind, _, _, where = socket.getaddrinfo(hosts[1], _DISCARD_PORT, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            # It sends nothing: the kernel chooses the address by the route.
            probe.connect(where)
            address = probe.getsockname()[0]
    with socket.create_server((address, 0), family=socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
        port = probe.getsockname()[1]
    return f"{address} {port} {secrets.token_urlsafe(30)}"
