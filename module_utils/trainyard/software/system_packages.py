# SPDX-License-Identifier: Apache-2.0
"""Say by which command a system installs packages, for people who may not install them and ask an administrator.

The roles know the names of Debian, of Red Hat's family (RHEL, Rocky, openEuler, Kylin servers) and of SUSE.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..base.findings import Finding

_FAMILIES = {
    **dict.fromkeys(("debian", "ubuntu"), "debian"),
    **dict.fromkeys(("rhel", "rocky", "almalinux", "centos", "fedora", "ol", "amzn"), "redhat"),
    **dict.fromkeys(("openeuler", "euleros", "hce", "anolis", "alinux", "tencentos"), "redhat"),
    **dict.fromkeys(("suse", "sles", "opensuse", "opensuse-leap"), "suse"),
}
# Their editions for desktops are of Debian's family, and name it in ID_LIKE.
_SERVERS = dict.fromkeys(("kylin", "uos"), "redhat")
_COMMANDS = {"debian": "apt install", "redhat": "dnf install", "suse": "zypper install"}
# What Ansible calls a family, as roles do. SUSE names most packages as Red Hat does.
_IN_ROLES = {"debian": ("Debian",), "redhat": ("RedHat",), "suse": ("Suse", "RedHat")}
# Packages that frameworks and compiled extensions need at most.
_USUAL = {
    "debian": ("python3-venv", "libgomp1", "g++", "python3-dev"),
    "redhat": ("python3", "libgomp", "gcc-c++", "python3-devel"),
    "suse": ("python3", "libgomp1", "gcc-c++", "python3-devel"),
}


def family(name: str, like: str = "") -> str:
    """Return debian, redhat, suse or the name itself, from ID and ID_LIKE of /etc/os-release."""
    names = [each.lower() for each in (name, *like.split())]
    known = next((_FAMILIES[each] for each in names if each in _FAMILIES), None)
    return known or _SERVERS.get(name.lower(), name)


def command(kind: str, packages: Iterable[str]) -> str:
    """Return the command that installs packages on a system of a family, "" for one whose command is not known."""
    return f"`{_COMMANDS[kind]} {' '.join(packages)}`" if kind in _COMMANDS else ""


def usual(kind: str) -> str:
    """Return the command that installs what programs may need of a system, "" for an unknown one."""
    return command(kind, _USUAL.get(kind, ()))


def venv(kind: str, version: str) -> str:
    """Return what to do where Python has no ensurepip; `version` is that of Python, as in 3.11."""
    another = "name an interpreter that has it"
    if kind == "debian":
        return f"install python{version}-venv ({command(kind, [f'python{version}-venv'])}), or {another}"
    if kind in _COMMANDS:
        return f"install python3 as the system has it, with venv inside ({command(kind, ['python3'])}), or {another}"
    return f"install python{version} with its modules venv and ensurepip, or {another}"


class Need(NamedTuple):
    """A file or program that the system lacks, the part of the software that needs it, and its package by family."""

    what: str
    part: str
    packages: Mapping[str, Any]
    # Another way than the package.
    otherwise: str = ""


def needs_findings(needs: Sequence[Need], kind: str) -> list[Finding]:
    """Return one finding on all that is missing on a system of this family, for its administrator."""
    parts: dict[str, list[str]] = {}
    for need in needs:
        parts.setdefault(need.what, []).append(need.part)
    if not parts:
        return []
    named = (next(filter(None, map(need.packages.get, _IN_ROLES.get(kind, ()))), "") for need in needs)
    packages = sorted({str(name) for name in named if name})
    send = f"sudo {_COMMANDS[kind]} {' '.join(packages)}" if packages else "the packages that have them"
    ways = dict.fromkeys(f"; or {need.otherwise}" for need in needs if need.otherwise)
    found = ", ".join(f"no {what} (for {', '.join(dict.fromkeys(names))})" for what, names in parts.items())
    expected = "what only root can install, as trainyard_manage_system is false"
    action = f"ask the administrator for: {send}{''.join(ways)}"
    return [Finding("packages of the system", found, expected, action)]
