# SPDX-License-Identifier: Apache-2.0
"""Calls of the tools that try ports, ibv_rc_pingpong (rdma-core) and Ascend's hccn_tool, and their outputs.

Exit statuses mislead, and a server waits for ever. Only the line that counts all exchanges is a success.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

PINGPONG = "ibv_rc_pingpong"
MISSING, LATE, SILENT = "it is not installed", "it does not listen in time", "no answer within "
# The tools run as nobody. The kernel lets everybody open these files unless a rule of udev says otherwise.
DENIED = "users that are not root cannot open "
# Few are enough to tell that a path works.
_EXCHANGES = 100
_COMPLETE = re.compile(
    rf"^(?:{_EXCHANGES} iters in \S{{1,40}} seconds = "
    r"|[ \t]{0,20}([1-9][0-9]{0,5}) packets transmitted, \1 received, 0\.00% packet loss)",
    re.M,
)
# Lines that are no reason: perror() prints an errno that nothing has set.
_NO_REASON = re.compile(r"\s*(?:(?:local|remote) address:|(?:client|server) read|device \d+ PING|recv seq=|$)")
# Reasons that say nothing about the port: both sides did not meet over TCP.
_UNTRIED = ("couldn't connect to ", "couldn't listen to ", MISSING, LATE, DENIED)


def pingpong_words(end: Mapping[str, Any], tcp: int, server: str = "") -> list[str]:
    """Return the arguments of a server on a TCP port, or with an address those of the client that connects to it.

    `end` has `device`, `port`, the index `gid` (None on InfiniBand) and `mtu` (None: the tool's default). Messages
    have 4096 bytes, so that a switch with a smaller MTU drops them. Events, not polling: many servers share few cores.
    """
    words = ["-e", "-d", end["device"], "-i", end["port"], "-p", tcp, "-n", _EXCHANGES]
    words += ["-m", end["mtu"]] if end["mtu"] else []
    words += ["-g", end["gid"]] if end["gid"] is not None else []
    return [str(word) for word in (*words, *([server] if server else []))]


def npu_words(address: str) -> list[str]:
    """Return the words after `hccn_tool -i N -ping` that try the address of another device."""
    return ["-inet6", "-g", "ipv6_address", address] if ":" in address else ["-g", "address", address]


def problem(output: str) -> str:
    """Return why a call has not exchanged everything, in the tool's words; "" where it has."""
    if _COMPLETE.search(output):
        return ""
    lines = [line.strip() for line in output.splitlines() if not _NO_REASON.match(line)]
    return lines[0][:200] if lines else "it printed no result"


def says_nothing(reason: str) -> bool:
    """Tell whether a reason says nothing about the ports."""
    return reason.lower().startswith(_UNTRIED)


def active_mtus(output: str) -> dict[str, int]:
    """Return the active MTU of each port, such as mlx5_0:1, from the output of `ibv_devinfo`."""
    found, place = {}, {"hca_id": "", "port": ""}
    for line in output.splitlines():
        name, _, value = (part.strip() for part in line.partition(":"))
        if name in place:
            place[name] = value
        elif name == "active_mtu" and (match := re.match(r"[0-9]{1,5}\b", value)):
            found[f"{place['hca_id']}:{place['port']}"] = int(match[0])
    return found


def redirecting_bridges(output: str) -> list[str] | None:
    """Return the ports of PCIe switches that redirect by ACS, from `lspci -Dvvv`; None where it hides them."""
    blocks = [block for block in re.split(r"\n\s*\n", output) if "PCI bridge" in block.partition("\n")[0]]
    if any("<access denied>" in block for block in blocks):
        return None
    # Root ports may redirect. They also have a capability that is called Downstream Port Containment.
    switch, redirect = re.compile(r"Express \(v\d\) Downstream Port"), re.compile(r"ACSCtl:.*(?:Req|Cmplt)Redir\+")
    return [block.split()[0] for block in blocks if switch.search(block) and redirect.search(block)]
