# SPDX-License-Identifier: Apache-2.0
"""Verify a running node: names resolve to the cluster's addresses, limits hold in sessions and in services.

memlock is in KiB, as ulimit(1) counts it. Limits are measured inside new processes: a session of the training user
through PAM (su), and a systemd service. `sshd -T` tells whether ssh sessions use PAM.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...trainyard.base.findings import Finding
from ...trainyard.cluster.hosts import Entry
from ...trainyard.cluster.hosts_file import rewrite_hosts
from ..machine.packages import missing_packages
from ..machine.tree import Tree

_TIMEOUT_S = 30.0
_CLOCK_S = 20.0
_CLOCK = {"LoadState": "loaded", "ActiveState": "active", "UnitFileState": "enabled"}
_ULIMIT = "ulimit -H -l && ulimit -H -n"


def read_hosts(path: str) -> str:
    """Return the text of a hosts file, "" without one. Bytes outside UTF-8 in a site's comments are preserved."""
    file = Path(path)
    return file.read_text(encoding="utf-8", errors="surrogateescape") if file.exists() else ""


def name_findings(host: str, entries: Iterable[Mapping[str, Any]]) -> list[Finding]:
    """Resolve every name as a program on this node would, and find those with another address."""
    action = "find the other line or service that resolves this name (getent ahosts, /etc/nsswitch.conf)"
    findings = []
    for entry in entries:
        for name in entry["names"]:
            try:
                found = sorted({str(info[4][0]) for info in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)})
            except OSError as error:
                found = [f"nothing ({error})"]
            if found != [entry["address"]]:
                findings.append(Finding(f"name {name}", ", ".join(found), str(entry["address"]), action, host=host))
    return findings


def parse_ulimit(output: str) -> dict[str, str]:
    """Parse the output of `ulimit -H -l && ulimit -H -n`. Raises ValueError for anything else."""
    words = output.split()
    if len(words) != 2 or not all(word.isdigit() or word == "unlimited" for word in words):
        raise ValueError(f"the limits could not be measured: {output.strip() or 'no output'}")
    return {"memlock": words[0], "nofile": words[1]}


def limit_findings(tree: Tree, host: str, user: str, limits: Mapping[str, str], systemd: bool) -> list[Finding]:
    """Measure the limits in a session and in a service, and find those that differ."""
    findings = []
    places = [("a session of the user (su)", ["su", "-s", "/bin/sh", user, "-c", _ULIMIT])]
    if systemd:
        options = ["--quiet", "--wait", "--pipe", "--collect", "--service-type=exec", f"--uid={user}"]
        places.append(("a systemd service", ["systemd-run", *options, "/bin/sh", "-c", _ULIMIT]))
    for place, argv in places:
        outcome = tree.command(argv[0], argv, _TIMEOUT_S)
        try:
            found = parse_ulimit(outcome.output if outcome else f"{argv[0]} is not installed")
        except ValueError as error:
            action = f"run on the node: {' '.join(argv)}"
            findings.append(Finding(f"limits in {place}", str(error), "memlock and nofile", action, host=host))
            continue
        action = "find the other file that sets it (/etc/security/limits.d, /etc/systemd/system.conf.d)"
        findings += [
            Finding(f"{name} in {place}", found[name], value, action, host=host)
            for name, value in limits.items()
            if found[name] != value
        ]
    sshd = tree.command("sshd-T", ["sshd", "-T"], _TIMEOUT_S)
    if sshd is not None and sshd.status == 0 and "usepam no" in sshd.output.lower().splitlines():
        text, action = "sshd has UsePAM no, so pam_limits does not apply", "set UsePAM yes in sshd_config"
        findings.append(Finding("limits in ssh sessions", text, "UsePAM yes", action, host=host))
    return findings


def hosts_differ(entries: Iterable[Mapping[str, Any]], block: str, left_out: Sequence[str]) -> bool:
    """Tell whether the module hosts_file would change /etc/hosts, or would fail."""
    rows = [Entry(entry["address"], tuple(entry["names"])) for entry in entries]
    try:
        before = read_hosts("/etc/hosts")
        after, conflicts = rewrite_hosts(before, rows, block, left_out)
    except (OSError, ValueError):
        return True
    return after != before or bool(conflicts)


def clock_problem(tree: Tree, units: Sequence[str]) -> str:
    """Return why the first of `units` that the node has does not keep the clock, or ""."""
    for unit in units:
        shown = tree.command(unit, ["systemctl", "show", "--property", ",".join(_CLOCK), unit], _CLOCK_S)
        state = dict(line.split("=", 1) for line in (shown.output if shown else "").splitlines() if "=" in line)
        if state.get("LoadState") == "not-found":
            continue
        wrong = [f"{name}={state.get(name, '')}" for name, value in _CLOCK.items() if state.get(name) != value]
        if wrong:
            return f"{unit} has {', '.join(wrong)}"
        argv = ["timedatectl", "show", "--property", "NTPSynchronized", "--value"]
        synchronised = tree.command("timedatectl", argv, _CLOCK_S)
        return "" if synchronised and synchronised.output.strip() == "yes" else "the clock is not synchronised"
    return f"there is no {' or '.join(units)}"


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
    """Return what is `missing` as texts and the missing `packages`; if nothing is missing, verify: `findings`.

    `host` is the inventory name. `entries` are the cluster's lines in `block` of /etc/hosts. `memlock` is in KiB or
    `unlimited`. The first existing unit of `time_units` keeps the clock. Empty options are not checked.
    """
    tree = Tree("/")
    absent = missing_packages(tree, package_manager, packages)
    missing = [f"package {name}" for name in absent]
    if block and hosts_differ(entries, block, left_out):
        missing.append("lines in /etc/hosts")
    problem = clock_problem(tree, time_units) if time_units else ""
    if problem:
        missing.append(f"time service: {problem}")
    findings = []
    if not missing:
        findings = name_findings(host, entries)
        findings += limit_findings(tree, host, user, {"memlock": str(memlock), "nofile": str(nofile)}, systemd)
    return {"missing": missing, "packages": absent, "findings": [finding.as_dict() for finding in findings]}
