# SPDX-License-Identifier: Apache-2.0
"""Exact versions with apt: which source offers what, which version is meant, what a transaction would do.

It reads the output of apt-cache, apt-get and dpkg-query of Debian 11 to 13 and Ubuntu.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from ..base.findings import Finding

# Upper bound for the versions that one finding lists.
_MAX_VERSIONS = 12
_BRING = "bring the repository or mirror to where it has it"
_CORRECT = f"correct the version, or {_BRING}"
# Debian Policy 5.6.7 and 5.6.12, as dpkg and apt take them.
_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]+(:[a-z0-9-]+)?")
# A field of a stanza with its further lines, which are indented.
_FIELD = re.compile(r"^([^\s:][^:\n]*):(.*(?:\n[ \t].*)*)", re.MULTILINE)
_VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+:~-]*")


class Offer(NamedTuple):
    """A version in a package list; origin and label are those of the repository's Release file."""

    version: str
    uri: str
    origin: str
    label: str


class Source(NamedTuple):
    """Where packages are to come from: the repository at `uri`, or without one those whose origin is in `origins`."""

    uri: str
    origins: tuple[str, ...] = ()

    def offers(self, offer: Offer) -> bool:
        """Return whether an offer comes from here."""
        return same_uri(offer.uri, self.uri) if self.uri else offer.origin in self.origins

    def __str__(self) -> str:
        """Name it in a message."""
        return self.uri or f"the distribution ({' or '.join(self.origins)})"


class Change(NamedTuple):
    """What apt would do with one package: `old` is empty for a new one, `new` for one that is removed."""

    name: str
    old: str
    new: str


def read_record(content: bytes) -> dict[str, dict[str, Any]]:
    """Read the record of installed packages: `version`, and whether it was `added`, by the package's name.

    Raises ValueError for anything that is no such record, as its content becomes arguments of apt.
    """
    try:
        record = json.loads(content)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(record, dict):
        raise ValueError("it is no dictionary")
    # Records have no number of a format so far; a newer version would write one.
    if isinstance(record.get("format"), int):
        raise ValueError(f"it has format {record['format']}, which only a newer version of trainyard reads")
    for name, entry in record.items():
        if not _PACKAGE.fullmatch(name):
            raise ValueError(f"{name[:60]!r} is no name of a package")
        if not isinstance(entry, dict) or set(entry) != {"version", "added"} or not isinstance(entry["added"], bool):
            raise ValueError(f"{name} has not just version and added")
        if not isinstance(entry["version"], str) or not _VERSION.fullmatch(entry["version"]):
            raise ValueError(f"{name} has no version")
    return record


def name_faults(names: Iterable[str]) -> list[str]:
    """Return which words are no names of packages, so that apt or dpkg may read something else: an option, a file."""
    return [f"{name[:60]!r} is no name of a package" for name in names if not _PACKAGE.fullmatch(name)]


def is_package(name: str, version: str) -> bool:
    """Return whether a name and a version are such, so that they may stand in a file of apt."""
    return bool(_PACKAGE.fullmatch(name) and _VERSION.fullmatch(version))


class Installed(NamedTuple):
    """Versions of the installed packages, and the names of those on hold, from dpkg."""

    versions: Mapping[str, str]
    held: frozenset[str]


@dataclass
class Plan:
    """The changes on one node. `versions` are those that the requested packages will have."""

    versions: dict[str, str] = field(default_factory=dict)
    install: list[str] = field(default_factory=list)
    remove: list[str] = field(default_factory=list)
    hold: list[str] = field(default_factory=list)
    release: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    @property
    def arguments(self) -> list[str]:
        """Arguments of `apt-get install`: NAME=VERSION, and NAME- for what is to go."""
        return [*self.install, *(f"{name}-" for name in self.remove)]


def same_uri(one: str, other: str) -> bool:
    """Compare addresses of repositories; apt prints them without the last slash."""
    return one.rstrip("/") == other.rstrip("/")


def read_stanzas(text: str) -> list[dict[str, str]]:
    """Read `Name: value` stanzas, as of Release files and `apt-get indextargets`; names in lower case."""
    stanzas = []
    for block in re.split(r"\n\s*\n", text.strip()):
        fields = _FIELD.findall(block)
        stanzas.append({name.lower(): "\n".join(map(str.strip, value.split("\n"))) for name, value in fields})
    return list(filter(None, stanzas))


def read_installed(listing: str) -> Installed:
    """Read lines of `dpkg-query --show` with package, version, status and selection, separated by tabs."""
    lines = [line.split("\t") for line in listing.splitlines()]
    versions = {name: version for name, version, status, _ in lines if status == "installed"}
    return Installed(versions, frozenset(name for name, _, _, selection in lines if selection == "hold"))


def read_lists(policy: str) -> dict[str, dict[str, str]]:
    """Read the package lists that `apt-cache policy` names: for each its Release fields, by one letter."""
    lists: dict[str, dict[str, str]] = {}
    last = ""
    for line in policy.partition("Pinned packages:")[0].splitlines():
        listed = re.match(r" *-?\d+ (\S.*)$", line)
        if listed:
            last = " ".join(listed[1].split())
            lists[last] = {}
        elif last and line.strip().startswith("release "):
            pairs = (part.partition("=") for part in line.strip()[len("release ") :].split(","))
            lists[last] = {name: value for name, _, value in pairs}
    return lists


def read_offers(madison: str, lists: Mapping[str, Mapping[str, str]]) -> dict[str, list[Offer]]:
    """Read `apt-cache madison`: the versions of each package, newest first, as apt prints them."""
    offers: dict[str, list[Offer]] = {}
    for line in madison.splitlines():
        cells = [" ".join(cell.split()) for cell in line.split(" | ")]
        if len(cells) != 3 or not cells[2].endswith(" Packages"):
            continue
        release = lists.get(cells[2], {})
        offer = Offer(cells[1], cells[2].split(" ")[0], release.get("o", ""), release.get("l", ""))
        offers.setdefault(cells[0], []).append(offer)
    return offers


def upstream(version: str) -> str:
    """Return a version without epoch and packaging suffix: 1:550.127.08-1~deb12u1 is 550.127.08."""
    without_epoch = version.partition(":")[2] or version
    return without_epoch.rpartition("-")[0] or without_epoch


def means(requested: str, version: str) -> bool:
    """Return whether a requested version, complete, without epoch or without packaging suffix, means this one.

    Debian 13 has NCCL 2.22.3 as 2.22.3-1-1: the vendor's release has a suffix of its own.
    """
    return requested in (version, version.partition(":")[2] or version, upstream(version), upstream(upstream(version)))


def read_transaction(simulation: str) -> list[Change]:
    """Read what `apt-get --simulate` would do."""
    changes = []
    for line in simulation.splitlines():
        match = re.match(r"(Inst|Remv|Purg) (\S+)(?: \[([^\]]*)\])?(?: \((\S+))?", line)
        if match:
            new = match[4] or "" if match[1] == "Inst" else ""
            changes.append(Change(match[2].partition(":")[0], match[3] or "", new))
    return changes


def has(request: Mapping[str, Any], versions: Mapping[str, Sequence[str]]) -> bool:
    """Return whether one of the `names` has the requested `version`, or, without one, a version that `begins` so."""
    return any(
        means(request["version"], version) if request["version"] else upstream(version).startswith(request["begins"])
        for name in request["names"]
        for version in versions.get(name, ())
    )


def missing(
    requests: Sequence[Mapping[str, Any]], offers: Mapping[str, Sequence[Offer]], source: Source
) -> list[Finding]:
    """Find which of the packages, as `has` reads them, a source does not offer."""
    here = {name: [offer.version for offer in each if source.offers(offer)] for name, each in offers.items()}
    findings = []
    for one in requests:
        if not has(one, here):
            found = f"{source} offers {_listed([each for name in one['names'] for each in here.get(name, ())])}"
            expected = one["version"] or (f"{one['begins'].rstrip('.')}.x" if one["begins"] else "any version")
            action = _CORRECT if one["version"] or one["begins"] else _BRING
            findings.append(Finding(f"package {' or '.join(one['names'])}", found, expected, action))
    return findings


def _listed(versions: Sequence[str]) -> str:
    unique = list(dict.fromkeys(versions))
    more = [f"... ({len(unique) - _MAX_VERSIONS} more)"] if len(unique) > _MAX_VERSIONS else []
    return ", ".join([*unique[:_MAX_VERSIONS], *more]) or "none"


def _resolve(
    name: str, requested: str, offers: Sequence[Offer], installed: str, ours: bool, source: Source
) -> tuple[str, Finding | None]:
    """Return the one version that is meant; what is installed and meant stays, even where it is offered no more."""
    here = [offer.version for offer in offers if source.offers(offer)]
    if requested:
        # A whole version may also be the beginning of another one: 2.22.3-1 and 2.22.3-1-1.
        meant = [requested] if requested in here else [version for version in here if means(requested, version)]
        matching = list(dict.fromkeys(meant))
        if installed and means(requested, installed) and (installed in matching or not matching):
            return installed, None
    else:
        # Any installed version from the right source. Without a requested version, nothing is upgraded.
        matching = [installed] if installed and (installed in here or ours) else here[:1]
    if len(matching) == 1:
        return matching[0], None
    elsewhere: dict[str, list[str]] = {}
    for offer in offers:
        if not source.offers(offer):
            elsewhere.setdefault(offer.uri, []).append(offer.version)
    if matching:
        found, action = f"{_listed(matching)} all are {requested}", f"give the whole version, such as {matching[0]}"
    else:
        others = [f"{uri} with {_listed(versions)}" for uri, versions in elsewhere.items()]
        found = f"{source} offers {_listed(here)}" + (f"; {'; '.join(others)} does not count" if others else "")
        action = _CORRECT if requested else _BRING
    return "", Finding(f"package {name}", found, requested or "any version", action)


def plan(
    requests: Sequence[Mapping[str, str]],
    offers: Mapping[str, Sequence[Offer]],
    installed: Installed,
    record: Mapping[str, Mapping[str, Any]],
    source: Source,
    remove_unwanted: bool,
) -> Plan:
    """Plan exact versions and holds for one node.

    `requests`: name and version (empty: what is there, else the newest). `record`: what was installed and held before
    for the same purpose, with `added` where it was not there earlier; what of it is no longer requested is released,
    and removed if `remove_unwanted` and it was added.
    """
    made = Plan()
    for package in requests:
        name, requested = package["name"], package.get("version") or ""
        present = installed.versions.get(name, "")
        version, finding = _resolve(name, requested, offers.get(name, ()), present, name in record, source)
        if finding:
            made.findings.append(finding)
            continue
        made.versions[name] = version
        if version != present:
            made.install.append(f"{name}={version}")
        if name not in installed.held:
            made.hold.append(name)
    names = {package["name"] for package in requests}
    for name, entry in record.items():
        if name in names or name not in installed.versions:
            continue
        if remove_unwanted and entry.get("added"):
            made.remove.append(name)
        elif name in installed.held:
            made.release.append(name)
    return made


def reasons(output: str) -> str:
    """Return apt's own error messages on one line."""
    lines = [line.strip() for line in output.splitlines()]
    marked = [line for line in lines if re.match(r"(E|Error|W|Warning): |.*(Depends|Conflicts|Breaks): ", line)]
    telling = [line for line in marked if "Some index files failed to download" not in line]
    return " / ".join(telling[:_MAX_VERSIONS] or lines[-3:]) or "nothing"


def check_transaction(
    made: Plan, status: int, simulation: str, installed: Installed, record: Mapping[str, Any], may_remove: Sequence[str]
) -> Iterator[Finding]:
    """Find what a transaction would do beyond the request: remove others' packages, change others' holds."""
    if status:
        found = f"apt-get install {' '.join(made.arguments)} is not possible: {reasons(simulation)}"
        action = "name all packages that depend on one another, at one version; `apt-get check` shows older faults"
        yield Finding("apt", found, "packages that fit together", action)
        return
    changes = read_transaction(simulation)
    allowed = {*made.remove, *(name for name in record if name not in made.versions)}
    removed = [change.name for change in changes if not change.new and change.name not in allowed]
    foreign = [name for name in removed if not any(fnmatchcase(name, pattern) for pattern in may_remove)]
    if foreign:
        expected = "none besides those that were installed for the same purpose"
        action = "remove them by hand if that is right, or take packages that do not conflict with them"
        yield Finding("packages that would be removed", ", ".join(foreign), expected, action)
    held = [
        f"{change.name} {change.old} would become {change.new or 'absent'}"
        for change in changes
        if change.name in installed.held and change.name not in made.versions and change.name not in record
    ]
    if held:
        action = "release the hold (apt-mark unhold) if that is right"
        yield Finding("packages on hold", ", ".join(held), "holds of others are left alone", action)
    wrong = [
        f"{change.name} {change.new} instead of {made.versions[change.name]}"
        for change in changes
        if change.new and made.versions.get(change.name, change.new) != change.new
    ]
    if wrong:
        yield Finding(
            "apt", ", ".join(wrong), "exactly the requested versions", "remove their pins in /etc/apt/preferences.d"
        )


def preferences(versions: Mapping[str, str], purpose: str, priority: int = 1001) -> str:
    """Write apt preferences that keep packages at their versions, even if somebody releases the hold.

    Above 1000, so that a newer one is replaced as well; below that nothing is downgraded. One stanza for each package,
    as each has its own version; a glob would move with the repository.
    """
    stanzas = [
        f"Package: {name}\nPin: version {version}\nPin-Priority: {priority}\n"
        for name, version in sorted(versions.items())
    ]
    return f"# {purpose}\n" + "\n".join(stanzas)
