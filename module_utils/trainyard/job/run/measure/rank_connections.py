# SPDX-License-Identifier: Apache-2.0
"""Find whether the ranks of a job met: whether any had a connection with the head.

Each node but the head checks the connections of its own ranks with the head; a job on one node is checked there. A job
without any connection may succeed as separate trainings. With `direct` that may be intended, unless each node ran a
launcher, or all print a loss.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple


class Connection(NamedTuple):
    """An open TCP connection with one of the addresses in question."""

    port: int
    remote_port: int
    uid: int
    inode: int


# Launchers whose ranks meet on the head, at a store or a scheduler.
MEETING = ("torchrun", "mindspore", "msrun", "oneflow")
# Minimum number of samples of a node, about a second apart, for a conclusion.
MIN_SAMPLES = 10
# Linux, include/net/tcp_states.h. One of an earlier job stays visible for a minute after its end.
_ESTABLISHED = "01"
# NFS.
_OTHERS = frozenset((2049,))


def connections(table: str, addresses: Iterable[str]) -> list[Connection]:
    """Return the open connections with these addresses in /proc/net/tcp or tcp6 (proc(5))."""
    encoded = {form for address in addresses for form in _forms(address)}
    found = []
    for line in table.splitlines()[1:]:
        fields = line.split()
        if len(fields) > 9 and fields[2].partition(":")[0] in encoded and fields[3] == _ESTABLISHED:
            port, remote = (int(field.partition(":")[2], 16) for field in fields[1:3])
            # Ports below 1024 belong to services of the system, such as ssh.
            if min(port, remote) >= 1024 and not _OTHERS & {port, remote}:
                found.append(Connection(port, remote, int(fields[7]), int(fields[9])))
    return found


def _forms(address: str) -> list[str]:
    """Return an address as the kernel's tables write it: words in native byte order, IPv4 also as IPv6."""
    try:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        packed = socket.inet_pton(family, address.partition("%")[0])
    except OSError:
        return []
    forms = [packed] if family == socket.AF_INET6 else [packed, b"\0" * 10 + b"\xff\xff" + packed]
    return ["".join(f"{word:08X}" for word in struct.unpack(f"={len(form) // 4}I", form)) for form in forms]


def apart(
    launcher: str,
    world_size: int,
    nodes: Sequence[str],
    states: Mapping[str, Mapping[str, Any] | None],
    trained: bool = False,
) -> dict[str, Any] | None:
    """Return the record of a job that succeeded although its ranks never met; None where they met or may have.

    `nodes` took part, the head first; `states` are their observations by host, `trained` tells whether a loss was read.
    """
    seen = {host: states.get(host) or {} for host in (nodes[1:] if len(nodes) > 1 else nodes)}
    if world_size < 2 or any(each.get("met", True) or each.get("looks", 0) < MIN_SAMPLES for each in seen.values()):
        return None
    launchers = sorted({each["launcher"] for each in seen.values() if each.get("launcher")})
    if launcher not in MEETING and not launchers and not trained:
        return None
    return {
        "head": nodes[0],
        "hosts": list(seen),
        "looks": min(each["looks"] for each in seen.values()),
        "launchers": launchers,
    }


def texts(found: Mapping[str, Any]) -> list[str]:
    """Return the warning that the ranks did not meet, with the evidence and what to do."""
    from ....base.findings import host_list

    if found.get("text"):
        return [f"WARNING: {found['text']}", str(found["action"])]
    hosts = [host for host in found["hosts"] if host != found["head"]]
    where = f"on {host_list(hosts)} had a connection with {found['head']}" if hosts else "had one with another"
    by = f", and each node ran {' and '.join(found['launchers'])} by itself" if found["launchers"] else ""
    return [
        f"WARNING: the ranks trained apart: in {found['looks']} samples of connections, no rank {where}{by}",
        "if they were to train together, see docs/your-program.md, Ranks that never meet; if each was to train for "
        "itself, set job_launcher: direct and job_env: {NNODES: 1}",
    ]
