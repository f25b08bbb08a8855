# SPDX-License-Identifier: Apache-2.0
"""Tell whether the ranks of a job met: whether any of them had a connection with the node where all of them meet.

Each node but the head looks for connections of its own ranks with the head; of a job on one node, that node does. A
job without any may still have succeeded: as many trainings, each by itself, as there are ranks or nodes. What a job
with `direct` does apart may be meant so, unless each node ran a launcher.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple


class Connection(NamedTuple):
    """A connection of TCP with one of the addresses that are looked for."""

    port: int
    remote_port: int
    uid: int
    inode: int


# Launchers whose ranks meet on the head, by a store or a scheduler there, unless something is wrong.
MEETING = ("torchrun", "mindspore", "msrun", "oneflow")
# Looks at a node, about a second apart, below which nothing is concluded.
LEAST_LOOKS = 10
# Linux, include/net/tcp_states.h: a socket that listens, or asks for a connection, has none.
_NO_CONNECTION = ("0A", "02", "03", "0C")
# NFS, over which nodes share folders.
_OTHERS = frozenset((2049,))


def connections(table: str, addresses: Iterable[str]) -> list[Connection]:
    """Return the connections with these addresses in a table of the kernel (proc(5), /proc/net/tcp and tcp6)."""
    wanted = {form for address in addresses for form in _forms(address)}
    found = []
    for line in table.splitlines()[1:]:
        fields = line.split()
        if len(fields) > 9 and fields[2].partition(":")[0] in wanted and fields[3] not in _NO_CONNECTION:
            port, remote = (int(field.partition(":")[2], 16) for field in fields[1:3])
            # Below 1024 are the system's own services, ssh for one.
            if min(port, remote) >= 1024 and not _OTHERS & {port, remote}:
                found.append(Connection(port, remote, int(fields[7]), int(fields[9])))
    return found


def _forms(address: str) -> list[str]:
    """Return an address as the kernel's tables have it: words in the machine's byte order, and IPv4 also as IPv6."""
    try:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        packed = socket.inet_pton(family, address.partition("%")[0])
    except OSError:
        return []
    forms = [packed] if family == socket.AF_INET6 else [packed, b"\0" * 10 + b"\xff\xff" + packed]
    return ["".join(f"{word:08X}" for word in struct.unpack(f"={len(form) // 4}I", form)) for form in forms]


def apart(
    launcher: str, world_size: int, nodes: Sequence[str], told: Mapping[str, Mapping[str, Any] | None]
) -> dict[str, Any] | None:
    """Return what was seen of a job that succeeded without its ranks having met; None where they did, or may have.

    `nodes` are those that took part, the head first; `told` is what each of them has seen.
    """
    seen = {host: told.get(host) or {} for host in (nodes[1:] if len(nodes) > 1 else nodes)}
    if world_size < 2 or any(each.get("met", True) or each.get("looks", 0) < LEAST_LOOKS for each in seen.values()):
        return None
    launchers = sorted({each["launcher"] for each in seen.values() if each.get("launcher")})
    if launcher not in MEETING and not launchers:
        return None
    return {
        "head": nodes[0],
        "hosts": list(seen),
        "looks": min(each["looks"] for each in seen.values()),
        "launchers": launchers,
    }


def texts(found: Mapping[str, Any]) -> list[str]:
    """Say that the ranks did not meet, as it was seen, and what to do."""
    from ...findings.findings import host_list

    hosts = [host for host in found["hosts"] if host != found["head"]]
    where = f"on {host_list(hosts)} had a connection with {found['head']}" if hosts else "had one with another"
    by = f", and each node ran {' and '.join(found['launchers'])} by itself" if found["launchers"] else ""
    return [
        f"WARNING: the ranks trained apart: in {found['looks']} looks at connections, no rank {where}{by}",
        "if they were to train together, see docs/your-program.md, Ranks that never meet; if not, job_launcher: direct "
        "expects none to meet",
    ]
