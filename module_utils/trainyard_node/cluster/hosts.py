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

from ...trainyard.cluster.hosts import Entry
from ...trainyard.cluster.hosts_file import rewrite_hosts
from ...trainyard.findings.findings import Finding
from ..machine.clock import clock_fault
from ..machine.packages import missing_packages
from ..machine.tree import Tree

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
                findings.append(
                    Finding(
                        f"name {name}",
                        ", ".join(found),
                        str(entry["address"]),
                        (
                            "look for another line or service that answers for this name (getent ahosts, "
                            "/etc/nsswitch.conf)"
                        ),
                        host=host,
                    )
                )
    return findings


def parse_ulimit(output: str) -> dict[str, str]:
    """Read what the shell printed for `ulimit -H -l` and `ulimit -H -n`. Raises ValueError for anything else."""
    words = output.split()
    if len(words) != 2 or not all(word.isdigit() or word == "unlimited" for word in words):
        raise ValueError(f"the limits could not be measured: {output.strip() or 'no output'}")
    return {"memlock": words[0], "nofile": words[1]}


def _services(user: str) -> list[str]:
    return [
        "systemd-run",
        "--quiet",
        "--wait",
        "--pipe",
        "--collect",
        "--service-type=exec",
        f"--uid={user}",
        "/bin/sh",
        "-c",
        _ULIMIT,
    ]


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
            findings.append(Finding(f"limits in {place}", str(error), "memlock and nofile", action, host=host))
            continue
        findings += [
            Finding(
                f"{name} in {place}",
                found[name],
                value,
                "look for another file that sets it (/etc/security/limits.d, /etc/systemd/system.conf.d)",
                host=host,
            )
            for name, value in wanted.items()
            if found[name] != value
        ]
    sshd = tree.command("sshd-T", ["sshd", "-T"], _TIMEOUT_S)
    if sshd is not None and sshd.status == 0 and "usepam no" in sshd.output.lower().splitlines():
        findings.append(
            Finding(
                "limits in ssh sessions",
                "sshd has UsePAM no, so pam_limits is not asked",
                "UsePAM yes",
                "set UsePAM yes in sshd_config",
                host=host,
            )
        )
    return findings


def hosts_differ(entries: Iterable[Mapping[str, Any]], block: str, left_out: Sequence[str]) -> bool:
    """Tell whether /etc/hosts is not what the module hosts_file would make of it; that one says why."""
    wanted = [Entry(entry["address"], tuple(entry["names"])) for entry in entries]
    try:
        before = read_hosts("/etc/hosts")
        after, conflicts = rewrite_hosts(before, wanted, block, left_out)
    except (OSError, ValueError):
        return True
    return after != before or bool(conflicts)


def baseline(
    *,
    host: str,
    entries: Sequence[Mapping[str, Any]],
    user: str,
    memlock: str | int,
    nofile: int,
    systemd: bool,
    block: str = "",
    left_out: Sequence[str] = (),
    packages: Sequence[str] = (),
    package_manager: str = "",
    time_units: Sequence[str] = (),
) -> dict[str, Any]:
    """Return what is `lacking` in words, the lacking `packages`, and where nothing is `findings`, the proof.

    `host` is the inventory name. `entries` are the cluster's lines in /etc/hosts, looked for in `block`. `memlock` is
    in KiB or `unlimited`. Of `time_units` the first that the node has keeps its clock. What is not given is not missed.
    """
    tree = Tree("/")
    absent = missing_packages(tree, package_manager, packages)
    lacking = [f"package {name}" for name in absent]
    if block and hosts_differ(entries, block, left_out):
        lacking.append("lines in /etc/hosts")
    fault = clock_fault(tree, time_units) if time_units else ""
    if fault:
        lacking.append(f"time service: {fault}")
    findings = []
    if not lacking:
        findings = name_findings(host, entries)
        findings += limit_findings(tree, host, user, {"memlock": str(memlock), "nofile": str(nofile)}, systemd)
    return {"lacking": lacking, "packages": absent, "findings": [finding.as_dict() for finding in findings]}
