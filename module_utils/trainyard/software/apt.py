# SPDX-License-Identifier: Apache-2.0
"""Exact versions with apt: who offers what, which version is meant, what a transaction would do, why an update failed.

Pure; it reads what apt-cache, apt-get and dpkg-query of Debian 11 to 13 and Ubuntu print.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from ..record.findings import Finding

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
    record = json.loads(content)
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
    """What is to be done on one node. `versions` are those that the wanted packages will have."""

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
        # Whatever is there, yet from the right source; without a version asked for, nothing moves by itself.
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
    return "", Finding(host, f"package {name}", found, wanted or "any version", action)


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
        return [
            Finding(
                host,
                "apt",
                f"apt-get install {asked} is not possible: {reasons(simulation)}",
                "packages that fit together",
                "name all packages that depend on one another, at one version; `apt-get check` shows older faults",
            )
        ]
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
        yield Finding(
            host,
            "packages that would be removed",
            ", ".join(foreign),
            "none besides those that were installed for the same purpose",
            "remove them by hand if that is right, or take packages that do not conflict with them",
        )
    held = [
        f"{change.name} {change.old} would become {change.new or 'absent'}"
        for change in changes
        if change.name in installed.held and change.name not in made.versions and change.name not in record
    ]
    if held:
        yield Finding(
            host,
            "packages on hold",
            ", ".join(held),
            "holds of others are left alone",
            "release the hold (apt-mark unhold) if that is right",
        )
    wrong = [
        f"{change.name} {change.new} instead of {made.versions[change.name]}"
        for change in changes
        if change.new and made.versions.get(change.name, change.new) != change.new
    ]
    if wrong:
        yield Finding(
            host, "apt", ", ".join(wrong), "exactly the versions that were asked for", "look for pins in /etc/apt"
        )


def preferences(versions: Mapping[str, str], purpose: str) -> str:
    """Write apt preferences that keep packages at their versions, even if somebody releases the hold.

    Above 1000, so that a newer one is replaced as well. One stanza for each package, as each has its own version; a
    glob would move with the repository.
    """
    stanzas = [
        f"Package: {name}\nPin: version {version}\nPin-Priority: 1001\n" for name, version in sorted(versions.items())
    ]
    return f"# {purpose}\n" + "\n".join(stanzas)


def network_source(uri: str, key_path: str, purpose: str) -> str:
    """Write the source of a flat repository, as the vendor's is: no suite, no component, a key for it alone."""
    return f"# {purpose}\nTypes: deb\nURIs: {uri.rstrip('/')}/\nSuites: /\nSigned-By: {key_path}\n"


def network_preferences(label: str, purpose: str) -> str:
    """Write the pin of a repository: taken where it is asked for by version, and never by itself.

    At the vendor's own 600, its packages would replace the distribution's of the same name at the next upgrade.
    """
    return f"# {purpose}\nPackage: *\nPin: release l={label}\nPin-Priority: 100\n"


def component_sources(
    targets: Sequence[Mapping[str, str]],
    codename: str,
    components: Sequence[str],
    origins: Sequence[str],
    own_file: str,
    purpose: str,
) -> str:
    """Write sources for components that the distribution's own mirrors, as configured, are not yet asked for.

    `targets`: stanzas of `apt-get indextargets`. Empty when nothing is missing.
    """
    suites = (codename, f"{codename}-updates", f"{codename}-security")
    having: dict[tuple[str, str, str], set[str]] = {}
    for target in targets:
        release = target.get("release", "")
        # Before the first update apt knows no origin; then the suite's name has to do.
        if target.get("origin", "") not in ("", *origins) or not target.get("component"):
            continue
        if target.get("sourcesentry", "").rpartition(":")[0] == own_file or release not in suites:
            continue
        # Not `trusted`: of a repository whose signature was verified apt says that, too.
        key = (target.get("repo-uri", ""), release, target.get("signed-by", ""))
        having.setdefault(key, set()).add(target["component"])
    stanzas = []
    for (uri, release, signed_by), present in having.items():
        missing = [component for component in components if component not in present]
        if "main" not in present or not missing:
            continue
        lines = ["Types: deb", f"URIs: {uri}", f"Suites: {release}", f"Components: {' '.join(missing)}"]
        # apt refuses two sources of one repository that do not agree in it.
        if signed_by:
            lines.append("Signed-By: " + signed_by.replace("\n", "\n "))
        stanzas.append("\n".join(lines) + "\n")
    return f"# {purpose}\n" + "\n".join(stanzas) if stanzas else ""


# Why `apt-get update` failed: what apt prints, what that means, what to do.
_FAULTS: tuple[tuple[str, str, str], ...] = (
    (
        r"SHA1 is not considered secure",
        "this system refuses the repository's key, which is signed with SHA-1 only",
        "take the repository and the key of this release of the system (for Debian 13 NVIDIA has another key), or a "
        "mirror that signs anew",
    ),
    (
        r"NO_PUBKEY|Missing key|Signing key on \w+ is not in|No keyring installed",
        "it is signed by another key than the one given",
        "compare nvidia_repository_key_fingerprint with the key that the repository is signed with",
    ),
    (
        r"BADSIG|signatures were invalid|Clearsigned file isn't valid|Bad Signature|Message has been manipulated",
        "its signature does not fit its content",
        "somebody or a broken mirror has changed it: take another mirror, do not switch the check off",
    ),
    (
        r"Hash Sum mismatch|File has unexpected size|Hashes of (expected|received) file",
        "its package list does not fit the signed sums",
        "a mirror that is being synchronised, a proxy's old copy, or tampering: wait for it, or take another mirror",
    ),
    (
        r"doesn't have the component '([^']+)'",
        "it has no component {0}",
        "take a mirror that carries it, or the provider network_repo",
    ),
    (
        r"Conflicting values set for option (\S+) regarding source (\S+)",
        "another source names {1} with another {0}",
        "remove one of the two in /etc/apt/sources.list.d",
    ),
    (
        r"changed its '(\w+)' value",
        "its {0} has changed",
        "look whether it is the right repository, then apt-get update",
    ),
    (
        r"is expired|Release file .* is not valid yet|not live until",
        "its Release file is expired, or the clock of the node is wrong",
        "set the clock, or bring the mirror up to date",
    ),
    (
        r"Could not (?:connect|resolve)|Connection (?:refused|timed out|failed)|Temporary failure resolving"
        r"|Network is unreachable|No route to host|Unable to connect|Cannot initiate the connection",
        "it does not answer",
        "start it, or see how the node reaches it (name, proxy, firewall)",
    ),
    (
        r"404 +Not Found|does not have a Release file",
        "there is no repository at this address",
        "correct nvidia_repository_url, nvidia_repository_distro and nvidia_repository_arch",
    ),
    (
        r"[Cc]ertificate verification failed|SSL",
        "its TLS certificate is not accepted",
        "install the certificate of the authority on the node",
    ),
    (r"is not signed", "it is not signed", "sign the mirror and name its key"),
)


def explain_update(host: str, output: str, where: str) -> Finding:
    """Say why the package list of a repository could not be had; `output` is that of a failed `apt-get update`."""
    said = reasons(output)
    for pattern, meaning, action in _FAULTS:
        match = re.search(pattern, output)
        if match:
            return Finding(
                host,
                "package repository",
                f"{where}: {meaning.format(*match.groups())}. apt says: {said}",
                "a signed repository that answers",
                action,
            )
    return Finding(
        host, "package repository", f"{where}: apt says: {said}", "a signed repository that answers", "see apt's words"
    )
