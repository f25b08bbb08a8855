# SPDX-License-Identifier: Apache-2.0
"""Proof on a running node: names resolve to the cluster's addresses, limits hold in sessions and in services.

memlock is in KiB, as ulimit(1) counts it. Limits are measured from inside fresh processes: a session of the training
user through PAM (su), a service under systemd, and sshd's own word on whether its sessions pass PAM.
"""
from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..trainyard.findings import Finding
from .tree import Tree

_TIMEOUT_S = 30.0
_ULIMIT = "ulimit -H -l && ulimit -H -n"


def read_hosts(path: str) -> str:
    """Return the text of a hosts file, "" where there is none. Bytes outside UTF-8, in a site's comments, survive."""
    file = Path(path)
    return file.read_text(encoding="utf-8", errors="surrogateescape") if file.exists() else ""


def name_findings(host: str, entries: Iterable[Mapping[str, Any]]) -> list[Finding]:
    """Resolve every name as a program on this node would, and find those that do not lead to their node."""
    findings = []
    for entry in entries:
        for name in entry["names"]:
            try:
                found = sorted({str(info[4][0]) for info in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)})
            except OSError as error:
                found = [f"nothing ({error})"]
            if found != [entry["address"]]:
                findings.append(Finding(
                    host, f"name {name}", ", ".join(found), str(entry["address"]),
                    "look for another line or service that answers for this name (getent ahosts, /etc/nsswitch.conf)",
                ))
    return findings


def parse_ulimit(output: str) -> dict[str, str]:
    """Read what the shell printed for `ulimit -H -l` and `ulimit -H -n`. Raises ValueError for anything else."""
    words = output.split()
    if len(words) != 2 or not all(word.isdigit() or word == "unlimited" for word in words):
        raise ValueError(f"the limits could not be measured: {output.strip() or 'no output'}")
    return {"memlock": words[0], "nofile": words[1]}


def _services(user: str) -> list[str]:
    return ["systemd-run", "--quiet", "--wait", "--pipe", "--collect", "--service-type=exec", f"--uid={user}",
            "/bin/sh", "-c", _ULIMIT]


def limit_findings(tree: Tree, host: str, user: str, wanted: Mapping[str, str], systemd: bool) -> list[Finding]:
    """Measure the limits in a session and in a service, and find those below the wanted ones."""
    findings = []
    session = ["su", "-s", "/bin/sh", user, "-c", _ULIMIT]
    places: list[tuple[str, Sequence[str]]] = [("a session of the user (su)", session)]
    if systemd:
        places.append(("a systemd service", _services(user)))
    for place, argv in places:
        outcome = tree.command(argv[0], list(argv), _TIMEOUT_S)
        try:
            found = parse_ulimit(outcome.output if outcome else f"{argv[0]} is not installed")
        except ValueError as error:
            action = f"run on the node: {' '.join(argv)}"
            findings.append(Finding(host, f"limits in {place}", str(error), "memlock and nofile", action))
            continue
        findings += [
            Finding(host, f"{name} in {place}", found[name], value,
                    "look for another file that sets it (/etc/security/limits.d, /etc/systemd/system.conf.d)")
            for name, value in wanted.items() if found[name] != value
        ]
    sshd = tree.command("sshd-T", ["sshd", "-T"], _TIMEOUT_S)
    if sshd is not None and sshd.status == 0 and "usepam no" in sshd.output.lower().splitlines():
        findings.append(Finding(
            host, "limits in ssh sessions", "sshd has UsePAM no, so pam_limits is not asked", "UsePAM yes",
            "set UsePAM yes in sshd_config",
        ))
    return findings
