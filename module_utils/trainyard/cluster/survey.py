# SPDX-License-Identifier: Apache-2.0
"""Check the first probe of every node, which needs only ssh and a shell.

A probe is shell output with lines `trainyard:KEY=VALUE`. Free space is in KiB there, and in GiB in messages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..base.findings import Finding, counted, host_list
from ..software import system_packages
from .unreachable import OLDEST_PYTHON, PYTHON, Answer, brace_before, cause, no_answers, python_finding

SUPPORTED = {"debian": ("11", "12", "13"), "ubuntu": ("22.04", "24.04")}
# Systems in guides whose own Python is too old for Ansible's modules and ours.
OWN_PYTHON = {
    ("ubuntu", "18.04"): "3.6",
    ("ubuntu", "20.04"): "3.8",
    ("debian", "10"): "3.7",
    ("centos", "7"): "3.6",
    ("centos", "8"): "3.6",
}
_KIB_PER_GIB = 1024 * 1024
_MARK = "trainyard:"
# Environments, checks and jobs work on a system whose packages the roles do not know.
_ON_ANY_LINUX = (
    "set trainyard_manage_system: false (or trainyard_become: false, if you are not root there) and have the driver, "
    "MPI and packages that programs need installed"
)


@dataclass(frozen=True)
class Survey:
    """The probe of one node, the facts in it, and a finding if the connecting user could not become root.

    `becomes` tells whether that was tried.
    """

    name: str
    connect: str
    probe: Answer
    privileges: Finding | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    becomes: bool = False

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Survey:
        """Read the record that the playbook collects: name, connect, and the results of its two raw tasks."""
        probe = record["probe"]
        facts = read_probe(str(probe.get("stdout", "")))
        become = record.get("become") or {}
        # The task is skipped where no privileges are requested or the node is unreachable.
        ran = facts and become and "skip_reason" not in become
        found = _privileges(become) if ran else None
        return cls(str(record["name"]), str(record["connect"]), probe, found, facts, bool(become))


def is_refused(probe: Answer) -> bool:
    """Tell whether a reachable host gave no facts, so that it is probed again without privileges."""
    return not probe.get("unreachable") and not read_probe(str(probe.get("stdout", "")))


def _privileges(become: Answer) -> Finding | None:
    """Return why `id -u` did not return 0 for a user who was to become root."""
    found = cause(become)
    # A shell has answered before, so any other failure is about privileges.
    if found and found.check != "answer":
        return found
    printed = str(become.get("stdout") or "").strip().splitlines()
    if become.get("rc") == 0 and printed and printed[-1].strip() == "0":
        return None
    if found:
        text = found.found
    elif printed:
        text = f"became uid {printed[-1].strip()}"
    else:
        text = (str(become.get("msg") or "").strip().splitlines() or ["refused"])[0]
    action = (
        "allow sudo for the connecting user, give the password with -K, or set trainyard_become: false if the user "
        "needs no root"
    )
    return Finding("become", text, "become root without a question", action)


def read_probe(text: str) -> dict[str, str]:
    """Return the probe's own lines; a login may print others."""
    lines = (line.strip() for line in text.splitlines())
    pairs = (line[len(_MARK) :].partition("=") for line in lines if line.startswith(_MARK))
    return {key: value for key, _, value in pairs}


def _python_finding(node: Survey) -> Finding | None:
    version = node.facts.get("python", "")
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if len(numbers) == 2 and numbers >= OLDEST_PYTHON:
        return None
    found = python_finding(f"Python {version}", is_old=True) if numbers else python_finding("no working Python")
    return found.on(node.name)


def _os_finding(node: Survey) -> Finding | None:
    system, version = node.facts.get("os_id", ""), node.facts.get("os_version", "")
    if version in SUPPORTED.get(system, ()):
        return None
    found = f"{system or 'unknown'} {version}".strip()
    usual = system_packages.usual(system_packages.family(system, node.facts.get("os_like", "")))
    action = _ON_ANY_LINUX + (f" ({usual})" if usual else "")
    instead = "use a node with one of these"
    own = OWN_PYTHON.get((system, version))
    if own:
        found += f", whose own Python is {own}"
        # Ansible's modules for apt and dnf work with the system's own Python only.
        action = f"install {PYTHON}, name it in ansible_python_interpreter, {action}"
        instead = "upgrade the node to one of these"
    expected = "Debian 11, 12, 13 or Ubuntu 22.04, 24.04"
    return Finding("operating system", found, expected, f"{action}; or {instead}", host=node.name)


def _space_findings(node: Survey, free_gib: Mapping[str, float]) -> list[Finding]:
    findings = []
    for path, minimum in free_gib.items():
        free = node.facts.get(f"free:{path}", "")
        if free.isdigit() and int(free) >= minimum * _KIB_PER_GIB:
            continue
        found = f"{int(free) / _KIB_PER_GIB:.1f} GiB free" if free.isdigit() else "free space unknown"
        action = "make room, or put the folder elsewhere (trainyard_root, trainyard_state)"
        findings.append(Finding(f"space for {path}", found, f"at least {minimum:g} GiB", action, host=node.name))
    return findings


def _login_finding(node: Survey) -> Finding | None:
    """Find output of a login before the probe that would hide the responses of modules."""
    lines = str(node.probe.get("stdout", "")).splitlines()
    first = next(number for number, line in enumerate(lines) if line.strip().startswith(_MARK))
    found = brace_before(lines[:first])
    return found.on(node.name) if found else None


def _shared(nodes: Iterable[tuple[str, str]], check: str, expected: str, action: str) -> list[Finding]:
    """Find what several nodes have; a node to which the inventory gives it as its name is not at fault."""
    holders: dict[str, list[str]] = {}
    for value, name in nodes:
        if value:
            holders.setdefault(value, []).append(name)
    return [
        Finding(check, f"{value} on {host_list(names)}", expected, action, host=name)
        for value, names in holders.items()
        if len(names) > 1
        for name in [each for each in names if _label(each) != value] or names
    ]


def _label(name: str) -> str:
    """Return the first label of a host name, in lower case."""
    return name.split(".")[0].lower()


def survey_findings(nodes: list[Survey], free_gib: Mapping[str, float], check_system: bool) -> list[Finding]:
    """Return all findings of all nodes. `free_gib` maps folders to the space that they need."""
    silent = [node for node in nodes if not node.facts]
    findings = no_answers({node.name: node.probe for node in silent}, {node.name: node.connect for node in silent})
    answered = [node for node in nodes if node.facts]
    for node in answered:
        found = [_os_finding(node) if check_system else None, _python_finding(node), _login_finding(node)]
        findings += [finding for finding in found if finding]
        if node.privileges:
            findings.append(node.privileges.on(node.name))
        findings += _space_findings(node, free_gib)
    names = ((_label(node.facts.get("hostname", "")), node.name) for node in answered)
    rename = "rename the nodes (hostnamectl set-hostname): launchers distinguish nodes by it"
    findings += _shared(names, "host name", "a different host name on every node", rename)
    addresses = ((node.connect, node.name) for node in nodes)
    correct = "correct ansible_host in the inventory"
    return findings + _shared(addresses, "inventory", "a different address for every node", correct)


def login_findings(
    nodes: Iterable[Survey], folders: Sequence[str], user: str, state: str, *, manages: bool = False
) -> list[Finding]:
    """Find what an ordinary user cannot do who logs in on hosts where Ansible does not become root.

    `folders` are those that this user makes, `user` is trainyard_user, `state` trainyard_state, and `manages`
    trainyard_manage_system.
    """
    logins = [node for node in nodes if node.facts.get("uid", "0") != "0" and not node.becomes]
    findings = []
    for node in logins:
        login, home = node.facts.get("user", ""), node.facts.get("home", "")
        if manages:
            found, action = (
                f"true, and {login} is not root",
                "leave trainyard_manage_system out, or set trainyard_become: true",
            )
            expected = "false, as trainyard_become is false"
            findings.append(Finding("trainyard_manage_system", found, expected, action, host=node.name))
        if user and login != user:
            expected = f"{user}, as trainyard_become is false"
            action = f"set ansible_user to {user} there, or trainyard_user to the login of all hosts"
            findings.append(Finding("trainyard_user", f"the login is {login}", expected, action, host=node.name))
            continue
        homes = {other.facts.get("home", ""): other.name for other in reversed(logins)}
        for folder in folders:
            of_other = next((name for name in homes if name != home and _is_below(folder, name)), "")
            place = _Place.read(node.facts.get(f"place:{folder}", ""))
            if of_other and not _is_below(folder, home) and not (place and place.writable):
                expected = f"{of_other}, as on {homes[of_other]}, where {folder} is"
                action = "set trainyard_root to a folder that the user can make on all hosts"
                findings.append(Finding("home", home or "none", expected, action, host=node.name))
            elif place:
                findings += [
                    each.on(node.name) for each in _place_findings(place, folder, node, is_state=folder == state)
                ]
    return findings


class _Place(NamedTuple):
    """A folder, or the nearest one above it that exists: its owner and mode, and whether the login may write there."""

    uid: str
    mode: int
    writable: bool
    path: str

    @classmethod
    def read(cls, text: str) -> _Place | None:
        """Read what a host said; None if it said something else."""
        match = re.fullmatch(r"(\d{1,10}) ([0-7]{1,5}) (w?) (/.*)", text)
        return cls(match[1], int(match[2], 8), bool(match[3]), match[4]) if match else None


def _place_findings(place: _Place, folder: str, node: Survey, *, is_state: bool) -> Iterator[Finding]:
    """Find a folder that the login cannot make or use, or that somebody else has made where anybody may."""
    login, uid = node.facts.get("user", ""), node.facts["uid"]
    # Software may be somebody else's on purpose, and needs no writing when it is complete.
    made = place.path == folder
    if is_state and made and (place.uid not in ("0", uid) or place.mode & 0o1002 == 0o002):
        found = f"{folder} is of uid {place.uid} with mode {place.mode:o}, so others can exchange what is in it"
        action = "move it away if nobody needs it, or set trainyard_state to another folder"
        yield Finding("folder", found, f"a folder that only {login} and root can change", action)
    elif not place.writable and (is_state or not made):
        found = f"{login} cannot write there"
        if not made:
            found = f"{login} cannot make it, as {place.path} cannot be written"
        action = (
            f"set trainyard_root, trainyard_state, or ask the administrator for: sudo install -d -o {login} {folder}"
        )
        yield Finding("folder", f"{folder}: {found}", "a folder of the login's user", action)


def _is_below(folder: str, home: str) -> bool:
    return len(home) > 1 and folder.startswith(f"{home}/")


def describe_nodes(nodes: list[Survey]) -> str:
    """Describe the nodes of a cluster without findings in one line."""

    def values(*keys: str) -> str:
        return ", ".join(sorted({" ".join(node.facts.get(key, "?") for key in keys) for node in nodes}))

    facts = [fact for node in nodes for fact in node.facts.items()]
    free = min((int(value) for key, value in facts if key.startswith("free:") and value.isdigit()), default=0)
    return (
        f"{counted(len(nodes), 'node')}: {values('os_id', 'os_version')}; Python {values('python')}; "
        f"at least {free / _KIB_PER_GIB:.0f} GiB free"
    )
