# SPDX-License-Identifier: Apache-2.0
"""What roles need of a system on which they may install nothing, as one list for its administrator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ..findings.findings import Finding

# Package managers by program: the family that names the packages, and the command.
MANAGERS = {
    "apt-get": ("Debian", "sudo apt-get install -y"),
    "dnf": ("RedHat", "sudo dnf install -y"),
    "yum": ("RedHat", "sudo yum install -y"),
    "zypper": ("Suse", "sudo zypper install -y"),
}


class Need(NamedTuple):
    """A file or program that the system lacks, the part of the software that needs it, and its package by family."""

    what: str
    part: str
    packages: Mapping[str, Any]
    # Another way than the package.
    otherwise: str = ""


def findings(needs: Iterable[Need], manager: str) -> list[Finding]:
    """Return one finding on all that is missing; `manager` is a key of MANAGERS, or empty."""
    parts: dict[str, list[str]] = {}
    packages: dict[str, None] = {}
    ways: dict[str, None] = {}
    family, command = MANAGERS.get(manager, ("", ""))
    for need in needs:
        parts.setdefault(need.what, []).append(need.part)
        # SUSE names most as Red Hat does.
        names = need.packages if family != "Suse" else {"Suse": need.packages.get("RedHat"), **need.packages}
        if package := str(names.get(family) or ""):
            packages[package] = None
        if need.otherwise:
            ways[need.otherwise] = None
    if not parts:
        return []
    found = ", ".join(f"no {what} (for {', '.join(dict.fromkeys(names))})" for what, names in parts.items())
    send = f"{command} {' '.join(sorted(packages))}" if packages else "the packages that have them"
    action = "".join([f"ask the administrator for: {send}", *(f"; or {way}" for way in ways)])
    expected = "what only root can install, as trainyard_manage_system is false"
    return [Finding("packages of the system", found, expected, action)]
