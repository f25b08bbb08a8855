# SPDX-License-Identifier: Apache-2.0
"""Exact versions with apt: who offers what, which version is meant, what a transaction would do.

Pure; it reads what apt-cache, apt-get and dpkg-query of Debian 11 to 13 and Ubuntu print.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from ..findings.findings import Finding

# At most this many versions are listed for a package before the rest is counted.
_MOST = 12
# Debian Policy 5.6.7 and 5.6.12, as dpkg and apt take them.
_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]+(:[a-z0-9-]+)?")
_VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+:~-]*")


class Offer(NamedTuple):
    """A version that a package list has; origin and label are those of the repository's Release file."""

    version: str
    uri: str
    origin: str
    label: str


class Source(NamedTuple):
    """Where packages are to come from: the repository at `uri`, or without one those whose origin is in `origins`."""

    uri: str
    origins: tuple[str, ...] = ()

    def offers(self, offer: Offer) -> bool:
        """Tell whether an offer comes from here."""
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
    """Read what was written down of installed packages: `version`, and whether it was `added`, by the package's name.

    Raises ValueError for anything that is no such record, as what is in it becomes arguments of apt.
    """
    try:
        record = json.loads(content)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(record, dict):
        raise ValueError("it is no dictionary")
    for name, entry in record.items():
        if not _PACKAGE.fullmatch(name):
            raise ValueError(f"{name[:60]!r} is no name of a package")
        if not isinstance(entry, dict) or set(entry) != {"version", "added"} or not isinstance(entry["added"], bool):
            raise ValueError(f"of {name} it does not say version and added")
        if not isinstance(entry["version"], str) or not _VERSION.fullmatch(entry["version"]):
            raise ValueError(f"of {name} it says no version")
    return record


@dataclass(frozen=True)
class Installed:
    """What dpkg has: versions of the installed packages, and the names of those on hold."""

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
    stanzas: list[dict[str, str]] = []
    for block in re.split(r"\n\s*\n", text.strip()):
        stanza: dict[str, str] = {}
        last = ""
        for line in block.splitlines():
            if line[:1].isspace():
                if last:
                    stanza[last] += "\n" + line.strip()
                continue
            name, colon, value = line.partition(":")
            if colon:
                last = name.lower()
                stanza[last] = value.strip()
        if stanza:
            stanzas.append(stanza)
    return stanzas


def read_installed(listing: str) -> Installed:
    """Read lines of `dpkg-query --show` with package, version, status and what is wanted, separated by tabs."""
    versions, held = {}, set()
    for line in listing.splitlines():
        name, version, status, want = line.split("\t")
        if status == "installed":
            versions[name] = version
        if want == "hold":
            held.add(name)
    return Installed(versions, frozenset(held))


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


def means(wanted: str, version: str) -> bool:
    """Tell whether a wanted version, whole, without epoch or without packaging suffix, means this one."""
    return wanted in (version, version.partition(":")[2] or version, upstream(version))


def read_transaction(simulation: str) -> list[Change]:
    """Read what `apt-get --simulate` would do."""
    changes = []
    for line in simulation.splitlines():
        match = re.match(r"(Inst|Remv|Purg) (\S+)(?: \[([^\]]*)\])?(?: \((\S+))?", line)
        if match:
            new = match[4] or "" if match[1] == "Inst" else ""
            changes.append(Change(match[2].partition(":")[0], match[3] or "", new))
    return changes


def has(wanted: Mapping[str, Any], versions: Mapping[str, Sequence[str]]) -> bool:
    """Tell whether one of the `names` has the `version` that is wanted, or, without one, one that `begins` so."""
    return any(
        means(wanted["version"], version) if wanted["version"] else upstream(version).startswith(wanted["begins"])
        for name in wanted["names"]
        for version in versions.get(name, ())
    )


def lacking(
    wanted: Sequence[Mapping[str, Any]], offers: Mapping[str, Sequence[Offer]], source: Source
) -> list[Finding]:
    """Find which of the packages, as `has` reads them, a source does not offer."""
    here = {name: [offer.version for offer in each if source.offers(offer)] for name, each in offers.items()}

    def finding(one: Mapping[str, Any]) -> Finding:
        there = _listed([version for name in one["names"] for version in here.get(name, ())])
        expected = one["version"] or (f"{one['begins'].rstrip('.')}.x" if one["begins"] else "any version")
        action = "correct the version, or bring the repository or mirror to where it has it"
        return Finding(f"package {' or '.join(one['names'])}", f"{source} offers {there or 'none'}", expected, action)

    return [finding(one) for one in wanted if not has(one, here)]


def _listed(versions: Sequence[str]) -> str:
    unique = list(dict.fromkeys(versions))
    more = f", ... ({len(unique) - _MOST} more)" if len(unique) > _MOST else ""
    return ", ".join(unique[:_MOST]) + more


def _resolve(
    host: str, name: str, wanted: str, offers: Sequence[Offer], installed: str, ours: bool, source: Source
) -> tuple[str, Finding | None]:
    """Return the one version that is meant; what is installed and meant stays, even where it is offered no more."""
    here = [offer.version for offer in offers if source.offers(offer)]
    if wanted:
        matching = list(dict.fromkeys(version for version in here if means(wanted, version)))
        if installed and means(wanted, installed) and (installed in matching or not matching):
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
        found, action = f"{_listed(matching)} all are {wanted}", "give the whole version, such as " + matching[0]
    else:
        found = f"{source} offers {_listed(here) or 'none'}"
        if elsewhere:
            others = (f"{uri} with {_listed(versions)}" for uri, versions in elsewhere.items())
            found += f"; {'; '.join(others)} does not count"
        action = "correct the version, or bring the repository or mirror to where it has it"
    return "", Finding(f"package {name}", found, wanted or "any version", action, host=host)


def plan(
    host: str,
    wanted: Sequence[Mapping[str, str]],
    offers: Mapping[str, Sequence[Offer]],
    installed: Installed,
    record: Mapping[str, Mapping[str, Any]],
    source: Source,
    remove_unwanted: bool,
) -> Plan:
    """Plan exact versions and holds for one node.

    `wanted`: name and version (empty: what is there, else the newest). `record`: what was installed and held before for
    the same purpose, with `added` where it was not there earlier; what of it is no longer wanted is released, and
    removed if `remove_unwanted` and it was added.
    """
    made = Plan()
    for package in wanted:
        name = package["name"]
        has = installed.versions.get(name, "")
        version, finding = _resolve(
            host, name, package.get("version") or "", offers.get(name, ()), has, name in record, source
        )
        if finding:
            made.findings.append(finding)
            continue
        made.versions[name] = version
        if version != has:
            made.install.append(f"{name}={version}")
        if name not in installed.held:
            made.hold.append(name)
    names = {package["name"] for package in wanted}
    for name, entry in record.items():
        if name in names or name not in installed.versions:
            continue
        if remove_unwanted and entry.get("added"):
            made.remove.append(name)
        elif name in installed.held:
            made.release.append(name)
    return made


def reasons(output: str) -> str:
    """Return apt's own words of what is wrong, on one line."""
    lines = [line.strip() for line in output.splitlines()]
    marked = [line for line in lines if re.match(r"(E|Error|W|Warning): |.*(Depends|Conflicts|Breaks): ", line)]
    telling = [line for line in marked if "Some index files failed to download" not in line]
    return " / ".join(telling[:_MOST] or lines[-3:]) or "nothing"


def judge_transaction(
    host: str,
    made: Plan,
    status: int,
    simulation: str,
    installed: Installed,
    record: Mapping[str, Any],
    may_remove: Sequence[str],
) -> list[Finding]:
    """Find what a transaction would do beyond what was asked for: remove others' packages, change others' holds."""
    asked = " ".join(made.arguments)
    if status:
        found = f"apt-get install {asked} is not possible: {reasons(simulation)}"
        action = "name all packages that depend on one another, at one version; `apt-get check` shows older faults"
        return [Finding("apt", found, "packages that fit together", action, host=host)]
    return list(_unwanted(host, made, read_transaction(simulation), installed, record, may_remove))


def _unwanted(
    host: str,
    made: Plan,
    changes: Sequence[Change],
    installed: Installed,
    record: Mapping[str, Any],
    may_remove: Sequence[str],
) -> Iterator[Finding]:
    allowed = {*made.remove, *(name for name in record if name not in made.versions)}
    removed = [change.name for change in changes if not change.new]
    foreign = [
        name
        for name in removed
        if name not in allowed and not any(fnmatchcase(name, pattern) for pattern in may_remove)
    ]
    if foreign:
        expected = "none besides those that were installed for the same purpose"
        action = "remove them by hand if that is right, or take packages that do not conflict with them"
        yield Finding("packages that would be removed", ", ".join(foreign), expected, action, host=host)
    held = [
        f"{change.name} {change.old} would become {change.new or 'absent'}"
        for change in changes
        if change.name in installed.held and change.name not in made.versions and change.name not in record
    ]
    if held:
        action = "release the hold (apt-mark unhold) if that is right"
        yield Finding("packages on hold", ", ".join(held), "holds of others are left alone", action, host=host)
    wrong = [
        f"{change.name} {change.new} instead of {made.versions[change.name]}"
        for change in changes
        if change.new and made.versions.get(change.name, change.new) != change.new
    ]
    if wrong:
        found = ", ".join(wrong)
        yield Finding("apt", found, "exactly the versions that were asked for", "look for pins in /etc/apt", host=host)


def preferences(versions: Mapping[str, str], purpose: str) -> str:
    """Write apt preferences that keep packages at their versions, even if somebody releases the hold.

    Above 1000, so that a newer one is replaced as well. One stanza for each package, as each has its own version; a
    glob would move with the repository.
    """
    stanzas = [
        f"Package: {name}\nPin: version {version}\nPin-Priority: 1001\n" for name, version in sorted(versions.items())
    ]
    return f"# {purpose}\n" + "\n".join(stanzas)
