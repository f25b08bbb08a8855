# SPDX-License-Identifier: Apache-2.0
"""Read in apt's log who installed which package, and what would go with a package."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

# Commands of apt as Ansible's module and trainyard's own (trainyard_node/software/apt_calls.py) give them.
_OURS = (
    re.compile(r"Dpkg::Options::=--force-confdef"),
    re.compile(r"install( --no-install-recommends)? python3-apt -y -q"),
    re.compile(r"install --yes --allow-downgrades --allow-change-held-packages"),
)
_FIELD = re.compile(r"^([A-Za-z-]+): (.*)$", re.MULTILINE)
_NAME = re.compile(r"(?:^|, )([a-z0-9][a-z0-9+.-]+):[a-z0-9-]+ \(")
# Without these, Ansible or a person could no longer reach the node, or it would not start.
_NEEDED = re.compile(
    r"(python3(\.\d+)?(-minimal)?|openssh-(server|client|sftp-server)|sudo|systemd(-sysv)?|"
    r"linux-(image|modules)-.*|grub.*|shim.*|initramfs-tools.*)"
)


def installed_by(history: str, since: str) -> tuple[set[str], set[str]]:
    """Return the packages that Ansible installed since this time, as apt's log says, and those that others did.

    The time is local, `2026-11-26  22:18:04`, as apt writes it.
    """
    ours: set[str] = set()
    others: set[str] = set()
    for block in re.split(r"\n\s*\n", history):
        fields = dict(_FIELD.findall(block))
        if fields.get("Start-Date", "") < since or "Install" not in fields:
            continue
        command = fields.get("Commandline", "")
        mine = any(form.search(command) for form in _OURS)
        (ours if mine else others).update(_NAME.findall(fields["Install"]))
    return ours, others - ours


class Package(NamedTuple):
    """An installed package: `depends` has one group of alternatives for each dependency."""

    depends: tuple[tuple[str, ...], ...] = ()
    provides: tuple[str, ...] = ()
    essential: bool = False


def read_packages(listing: str) -> dict[str, Package]:
    """Read lines of dpkg-query: name, depends, pre-depends, provides, essential, priority, separated by tabs."""
    found = {}
    for line in listing.splitlines():
        name, depends, ahead, provides, essential, priority = line.split("\t")
        groups = [_names(each.split("|")) for part in (depends, ahead) for each in part.split(",") if each.strip()]
        needed = essential == "yes" or priority == "required"
        found[name] = Package(tuple(groups), _names(provides.split(",")), needed)
    return found


def read_automatic(states: str) -> set[str]:
    """Read apt's extended_states: the packages that were installed as dependencies."""
    found = set()
    for block in states.split("\n\n"):
        fields = dict(_FIELD.findall(block))
        if fields.get("Auto-Installed") == "1":
            found.add(fields.get("Package", ""))
    return found - {""}


def _names(parts: Iterable[str]) -> tuple[str, ...]:
    """Return names of packages without versions and architectures."""
    words = (part.split("(")[0].strip().partition(":")[0] for part in parts)
    return tuple(word for word in words if word)


def removable(ours: Collection[str], installed: Mapping[str, Package]) -> tuple[list[str], dict[str, str]]:
    """Return which of our packages can go, and why others stay, by name.

    A package stays that one which is not ours depends on, directly or through ours, and one that the node needs.
    """
    present = {name for name in ours if name in installed}
    stay: dict[str, str] = {}
    for name in sorted(present):
        if installed[name].essential or _NEEDED.fullmatch(name):
            stay[name] = "the node needs it"
    for_good = set(installed) - present
    providers: dict[str, set[str]] = {}
    for name, package in installed.items():
        for each in (name, *package.provides):
            providers.setdefault(each, set()).add(name)
    waiting = sorted(for_good | set(stay))
    while waiting:
        name = waiting.pop()
        for group in installed[name].depends:
            candidates = {each for alternative in group for each in providers.get(alternative, ())}
            if not candidates or candidates & (for_good | set(stay)):
                continue
            chosen = next(each for option in group for each in sorted(providers.get(option, ())) if each in candidates)
            stay[chosen] = f"{name} depends on it"
            waiting.append(chosen)
    return sorted(present - set(stay)), stay
