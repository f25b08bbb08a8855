# SPDX-License-Identifier: Apache-2.0
"""Requirement files with hashes: which packages are installed by them, and pip's message about another file.

Such a file is what `uv pip compile --generate-hashes` and pip-compile write: `name==version ; marker`, hashes, and in
comments which other packages need it (`# via torch`). pip evaluates the markers. Beside the usual build of a package,
`.ci/requirements.py` adds a named one (`torch==2.13.0+cpu`) with a comment that lists what it needs (`# needs sympy`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .requirements import Pin, PinError, meets, normal, parse, without_password

_ENTRY = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?==(?P<version>[^\s;\\]+)\s*(?P<marker>;[^\\]+?)?\s*"
    r"(?P<hashes>(?:\\\n\s*--hash=sha256:[0-9a-f]{64}\s*?)+)\n(?P<comments>(?:[ \t]+#[^\n]*\n)*)"
)
_MISMATCH = re.compile(
    r"^ +(?P<package>\S[^\n]*?) from (?P<source>\S+).*?:\s+Expected sha256 .*?Got\s+(?P<got>[0-9a-f]{64})",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Entry:
    """One package of the file; `via` are the normal names of those that need it, none where no comment says so.

    `needs` are the normal names of what a named build needs, as `via` tells it of the usual build.
    """

    name: str
    version: str
    marker: str
    hashes: str
    via: frozenset[str]
    needs: frozenset[str] = frozenset()

    @property
    def line(self) -> str:
        """Return the line for pip, without hashes."""
        return f"{self.name}=={self.version}{' ' if self.marker else ''}{self.marker}"


@dataclass(frozen=True)
class ByHashes:
    """The packages to install by hashes: `lines` by name for pip, and `constraints`, the same without the hashes."""

    lines: Mapping[str, list[str]]
    constraints: list[str]
    # Whether pip must find further packages elsewhere.
    rest: bool


def read(text: str) -> list[Entry]:
    """Return the packages of a file with hashes."""
    needs = re.compile(r"^[ \t]+# needs (.+)$", re.MULTILINE)
    return [
        Entry(
            normal(match["name"]),
            match["version"],
            (match["marker"] or "").strip(),
            "".join(f" {each}" for each in re.findall(r"--hash=sha256:[0-9a-f]{64}", match["hashes"])),
            frozenset(normal(name) for name in re.findall(r"^\s+#(?: via)?\s+([A-Za-z0-9][\w.-]*)$",
                                                          match["comments"], re.MULTILINE)
                      if name != "via"),
            frozenset(name for line in needs.findall(match["comments"]) for name in line.split()),
        )
        for match in _ENTRY.finditer(f"{text}\n")
    ]  # fmt: skip


def unread(text: str) -> list[str]:
    """Return the lines that name a package without a pin and hashes."""
    there = {(entry.name, entry.version) for entry in read(text)}
    found = []
    for line in text.splitlines():
        match = re.match(r"([A-Za-z0-9][\w.-]*)(?:\[[^\]]*\])?==([^\s;\\]+)", line)
        if line[:1].isalnum() and (match is None or (normal(match[1]), match[2]) not in there):
            found.append(line.rstrip(" \\"))
    return found


def by_hashes(
    text: str, pins: Iterable[Pin], wheels: Mapping[str, str], constraints: Iterable[str], python: tuple[int, int]
) -> ByHashes:
    """Return the packages to install by the hashes of a file (its text): pins in the same version, and dependencies.

    A package with another version in a pin or a constraint, or with a wheel of its own, is left out. Hashes of a pin
    precede those of the file. A named build counts where its marker holds for this Python.
    """
    entries = [each for each in read(text) if "+" not in each.version or meets(each.marker, python)]
    pins = list(pins)
    chosen = {name: (version, "") for name, version in _constrained(constraints, python).items()}
    chosen |= {pin.name: (pin.version, pin.hashes) for pin in pins}
    there = {(entry.name, entry.version) for entry in entries}
    own = [pin for pin in pins if pin.name in wheels or (pin.name, pin.version) not in there]
    out = {pin.name for pin in own} | {name for name, (version, _) in chosen.items() if (name, version) not in there}
    taken = {pin.name for pin in pins} - out
    pinned = {(pin.name, pin.version) for pin in pins if pin.name in taken and "+" in pin.version}
    named = [entry for entry in entries if (entry.name, entry.version) in pinned]
    start = taken.difference(entry.name for entry in named).union(*(entry.needs for entry in named))
    needed = taken | _needed(entries, start)
    lines: dict[str, list[str]] = {}
    bare = []
    for entry in entries:
        version, hashes = chosen.get(entry.name, (entry.version, ""))
        if entry.name in needed - out and entry.version == version:
            # Its marker is known to hold.
            line = f"{entry.name}=={version}" if entry.name in chosen else entry.line
            lines.setdefault(entry.name, []).append(line + (hashes or entry.hashes))
            bare.append(line)
    # The file does not record the dependencies of an extra.
    return ByHashes(lines, bare, bool(own or needed & out) or any("[" in pin.requirement for pin in pins))


def _constrained(constraints: Iterable[str], python: tuple[int, int]) -> dict[str, str]:
    """Return the version to which each package is constrained, "" for other bounds than an exact one."""
    versions: dict[str, str] = {}
    for text in constraints:
        try:
            pin = parse(text, python)
        except PinError:
            match = re.match(r"\s*([A-Za-z0-9][\w.-]*)", text)
            versions |= {normal(match[1]): ""} if match else {}
        else:
            versions |= {pin.name: pin.version} if pin else {}
    return versions


def _needed(entries: Iterable[Entry], taken: set[str]) -> set[str]:
    """Return the names of packages and of all their dependencies."""
    needed = set(taken)
    while new := {entry.name for entry in entries if entry.name not in needed and entry.via & needed}:
        needed |= new
    return needed


def mismatch(output: str, wheels: Iterable[str] = ()) -> str:
    """Describe the file with another hash, and what to do, from the output of pip; "" for other failures.

    `wheels` are the normal names of packages whose wheels have an address and a sum of their own.
    """
    match = _MISMATCH.search(output) if "DO NOT MATCH THE HASHES" in output else None
    if match is None:
        return ""
    package, source = match["package"], without_password(match["source"].partition("#")[0])
    trust = (
        f"list it among the packages with its hash ({package} --hash=sha256:{match['got']}), or set "
        "ROLE_require_hashes: false, as for builds of your own"
    )
    name = re.split(r"[=@\s]", package)[0]
    if normal(name) in wheels:
        package, trust = name, "correct the sum of the wheel"
    return (
        f"the file of {package} at {source} has the sha256 {match['got']}, which is none of those expected; find out "
        f"whether somebody has changed it. If you trust this file, {trust}"
    )
