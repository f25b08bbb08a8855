# SPDX-License-Identifier: Apache-2.0
"""Judge what the first look at every node brought, before anything but ssh and a shell is taken for granted.

A node's probe is shell output with lines `trainyard:KEY=VALUE`; free space is in KiB there and in GiB in what a person
reads. Supported systems are those of the support matrix.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..findings.findings import Finding, host_list
from .unreachable import NEWER_PYTHON, Answer, brace_before, cause
from .unreachable import findings as no_answers

SUPPORTED = {"debian": ("11", "12", "13"), "ubuntu": ("22.04", "24.04")}
OLDEST_PYTHON = (3, 9)
# Systems that guides still name, whose own Python is too old for Ansible's modules and ours.
OWN_PYTHON = {
    ("ubuntu", "18.04"): "3.6",
    ("ubuntu", "20.04"): "3.8",
    ("debian", "10"): "3.7",
    ("centos", "7"): "3.6",
    ("centos", "8"): "3.6",
}
_KIB_PER_GIB = 1024 * 1024


@dataclass(frozen=True)
class Survey:
    """What one node said, and what was brought back in place of it; `refused` is why root was refused."""

    name: str
    connect: str
    probe: Answer
    refused: Finding | None = None
    said: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Survey:
        """Read the record that the playbook collects: name, connect, and the results of its two raw tasks."""
        probe = record["probe"]
        said = read_probe(str(probe.get("stdout", "")))
        become = record.get("become") or {}
        # Privileges are not wanted, or the node is unreachable.
        asked = bool(said) and bool(become) and "skip_reason" not in become
        return cls(str(record["name"]), str(record["connect"]), probe, _refused(become) if asked else None, said)


def is_refused(probe: Answer) -> bool:
    """Tell whether a host that was reached has not said what it is, so that it is asked again without privileges."""
    return not probe.get("unreachable") and not read_probe(str(probe.get("stdout", "")))


def _refused(become: Answer) -> Finding | None:
    """Return why a node did not answer `id -u` with 0 to one who should have become root."""
    found = cause(become)
    # Whatever else came from there, a shell has answered before: it is privileges that are wanting.
    if found and found.check != "answer":
        return found
    printed = last_line(become.get("stdout"))
    if become.get("rc") == 0 and printed == "0":
        return None
    said = found.found if found else f"became uid {printed}" if printed else first_line(become.get("msg")) or "refused"
    return Finding(
        "become",
        said,
        "become root without a question",
        (
            "allow sudo for the connecting user, give the "
            "password with -K, or set trainyard_become: false when it needs none"
        ),
    )


def first_line(text: Any) -> str:
    """Return the first line that is not empty."""
    return next((line.strip() for line in str(text or "").splitlines() if line.strip()), "")


def last_line(text: Any) -> str:
    """Return the last line that is not empty."""
    return first_line("\n".join(reversed(str(text or "").splitlines())))


def read_probe(text: str) -> dict[str, str]:
    """Take the probe's own lines out of whatever else a login printed."""
    pairs = (
        line.strip()[len("trainyard:") :].partition("=")
        for line in text.splitlines()
        if line.strip().startswith("trainyard:")
    )
    return {key: value for key, _, value in pairs}


def _python_finding(node: Survey) -> Finding | None:
    version = node.said.get("python", "")
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if len(numbers) == 2 and numbers >= OLDEST_PYTHON:
        return None
    return Finding(
        "Python",
        f"Python {version}" if numbers else "no Python that runs",
        "Python 3.9 or newer",
        NEWER_PYTHON if numbers else "install python3, or name another one in ansible_python_interpreter",
        host=node.name,
    )


def _os_finding(node: Survey) -> Finding | None:
    system, version = node.said.get("os_id", ""), node.said.get("os_version", "")
    if version in SUPPORTED.get(system, ()):
        return None
    found = f"{system or 'unknown'} {version}".strip()
    action = "use a node with one of these, or set trainyard_manage_system=false and prepare the node yourself"
    own = OWN_PYTHON.get((system, version))
    if own:
        found += f", whose own Python is {own}"
        # Ansible's modules for apt and dnf work with the system's Python alone, so a second one is no way for them.
        action = (
            "upgrade the node to one of these; where it must stay, bring a Python 3.9 or newer of your own, name it in "
            "ansible_python_interpreter, set trainyard_manage_system=false and install driver, CUDA and MPI yourself"
        )
    return Finding("operating system", found, "Debian 11, 12, 13 or Ubuntu 22.04, 24.04", action, host=node.name)


def _space_findings(node: Survey, free_gib: Mapping[str, float]) -> list[Finding]:
    findings = []
    for path, wanted in free_gib.items():
        free = node.said.get(f"free:{path}", "")
        if free.isdigit() and int(free) >= wanted * _KIB_PER_GIB:
            continue
        found = f"{int(free) / _KIB_PER_GIB:.1f} GiB free" if free.isdigit() else "free space unknown"
        findings.append(
            Finding(
                f"space for {path}",
                found,
                f"at least {wanted:g} GiB",
                "make room, or put the folder elsewhere (trainyard_root, trainyard_state)",
                host=node.name,
            )
        )
    return findings


def _login_finding(node: Survey) -> Finding | None:
    """Find what a login printed before the probe that would hide what modules answer."""
    lines = str(node.probe.get("stdout", "")).splitlines()
    first = next(number for number, line in enumerate(lines) if line.strip().startswith("trainyard:"))
    found = brace_before(lines[:first])
    return found.on(node.name) if found else None


def _shared(nodes: Iterable[tuple[str, str]], check: str, expected: str, action: str) -> list[Finding]:
    holders: dict[str, list[str]] = {}
    for value, name in nodes:
        if value:
            holders.setdefault(value, []).append(name)
    return [
        Finding(check, f"{value} on {host_list(names)}", expected, action, host=name)
        for value, names in holders.items()
        if len(names) > 1
        for name in names
    ]


def judge_survey(nodes: list[Survey], free_gib: Mapping[str, float], check_system: bool) -> list[Finding]:
    """Return all findings of all nodes. `free_gib` maps folders to the space that they need."""
    silent = [node for node in nodes if not node.said]
    findings = no_answers({node.name: node.probe for node in silent}, {node.name: node.connect for node in silent})
    answered = [node for node in nodes if node.said]
    for node in answered:
        found = [_os_finding(node) if check_system else None, _python_finding(node), _login_finding(node)]
        findings += [finding for finding in found if finding]
        if node.refused:
            findings.append(node.refused.on(node.name))
        findings += _space_findings(node, free_gib)
    findings += _shared(
        ((node.said.get("hostname", "").split(".")[0].lower(), node.name) for node in answered),
        "host name",
        "a different host name on every node",
        "rename the nodes (hostnamectl set-hostname): launchers tell nodes apart by it",
    )
    findings += _shared(
        ((node.connect, node.name) for node in nodes),
        "inventory",
        "a different address for every node",
        "correct ansible_host in the inventory",
    )
    return findings


def describe_nodes(nodes: list[Survey]) -> str:
    """Say in one line what the nodes are, for a cluster without findings."""

    def values(*keys: str) -> str:
        return ", ".join(sorted({" ".join(node.said.get(key, "?") for key in keys) for node in nodes}))

    frees = [
        int(value) for node in nodes for key, value in node.said.items() if key.startswith("free:") and value.isdigit()
    ]
    count = f"{len(nodes)} nodes" if len(nodes) != 1 else "1 node"
    return (
        f"{count}: {values('os_id', 'os_version')}; Python {values('python')}; "
        f"at least {min(frees, default=0) / _KIB_PER_GIB:.0f} GiB free"
    )
