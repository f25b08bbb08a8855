# SPDX-License-Identifier: Apache-2.0
"""Resolve on the controller which packages hosts of another system get, by apt on an empty system in a folder."""

from __future__ import annotations

import os
import shutil
import tempfile
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...trainyard.base.findings import Finding
from ...trainyard.base.visible import one_line
from ...trainyard.bundle import debs, repositories
from ...trainyard.bundle.repositories import Record
from ...trainyard.bundle.site_lock import Wanted
from ...trainyard.bundle.systems import System
from ...trainyard.nvidia import driver_packages
from ...trainyard.software import apt, apt_sources, openpgp
from ...trainyard.software.requirements import without_password
from ...trainyard.software.words import WordError, source_word
from ...trainyard_node.machine import commands
from ...trainyard_node.software.apt_calls import check_key
from . import logins

# Bounds of one call of apt and of one answer, in seconds, of a key's file, in bytes, and of an error, in characters.
_LIMIT_S, _SILENT_S, _KEY_BYTES, _SHOWN = 900, 60, 1 << 20, 600
_PURPOSE = "For a lock of trainyard."


class NotResolvedError(Exception):
    """What cannot be resolved, as findings."""

    def __init__(self, *findings: Finding) -> None:
        """Keep the findings."""
        super().__init__("; ".join(finding.found for finding in findings))
        self.findings = findings


def resolve(system: System, wanted: Wanted, mirror: Mapping[str, str]) -> tuple[list[debs.Deb], list[dict[str, str]]]:
    """Return what apt downloads for all hosts of a system, and the packages (what, why) that it does not have.

    `mirror`: addresses instead of this machine's own (main, security). Raises NotResolvedError.
    """
    records = [record for each in wanted.further for record in each]
    named = {name.partition("=")[0] for name in wanted.packages if name != "?essential"}
    if wrong := apt.name_faults(sorted({*named, *wanted.optional, *repositories.all_names(records)})):
        raise NotResolvedError(_unusable(system, "; ".join(wrong)))
    try:
        return _resolve(system, wanted, mirror)
    except WordError as error:
        raise NotResolvedError(_unusable(system, str(error))) from error


def _unusable(system: System, found: str) -> Finding:
    action = "correct the packages, node_baseline_apt_mirror or the variables of nvidia_repository"
    return Finding(f"packages of {system}", found, "words that apt takes for names and addresses", action)


def _resolve(system: System, wanted: Wanted, mirror: Mapping[str, str]) -> tuple[list[debs.Deb], list[dict[str, str]]]:
    found: set[debs.Deb] = set()
    absent: dict[str, dict[str, str]] = {}
    # Hosts with different drivers need different packages: apt resolves each kind of host by itself.
    for records in wanted.further or [[]]:
        with tempfile.TemporaryDirectory(prefix="trainyard-lock-") as name:
            # apt's methods and gpgv run as the user _apt.
            Path(name).chmod(0o755)
            root = _Root(Path(name), system, records)
            root.configure(mirror)
            found.update(root.debs(wanted))
            absent.update({each["what"]: each for each in root.absent})
    return sorted(found), [absent[what] for what in sorted(absent)]


@dataclass
class _Root:
    """An empty system whose apt knows the sources of one kind of host."""

    folder: Path
    system: System
    records: Sequence[Record]
    absent: list[dict[str, str]] = field(default_factory=list)

    def _failed(self, found: str, expected: str, action: str) -> NotResolvedError:
        return NotResolvedError(Finding(f"packages of {self.system}", found, expected, action))

    def _run(self, *argv: str) -> tuple[int, str]:
        env = {**os.environ, "APT_CONFIG": str(self.folder / "apt.conf"), "LC_ALL": "C.UTF-8"}
        done = commands.run(argv, _LIMIT_S, env=env)
        return done.status, done.output

    def configure(self, mirror: Mapping[str, str]) -> None:
        """Write the sources and fetch their lists. Raises NotResolvedError."""
        if shutil.which("apt-get") is None:
            raise self._failed(
                "no apt-get on the controller", "Debian's or Ubuntu's apt", "run lock.yml on such a machine"
            )
        targets = apt.read_stanzas(commands.run(["apt-get", "indextargets"], 60).output)
        found = {**debs.mirrors(targets, self.system.distribution), **mirror}
        if "main" not in found:
            raise self._failed(
                f"this machine's apt has no mirror of {self.system.distribution}",
                "the address of one",
                "set node_baseline_apt_mirror, which the nodes use, too",
            )
        for each in ("lists/partial", "archives/partial", "etc/preferences.d", "etc/apt.conf.d"):
            (self.folder / each).mkdir(parents=True)
        (self.folder / "status").touch()
        (self.folder / "apt.conf").write_text(debs.configuration(self.folder, self.system, logins.path()))
        lines = [debs.sources(self.system, found, repositories.components(self.records))]
        networks = repositories.of_network(self.records)
        for number, record in enumerate(networks):
            lines.append(self._source(record, f"{number}-{self.system.codename}"))
        (self.folder / "etc/sources.list").write_text("".join(lines))
        status, output = self._run("apt-get", "update", "--quiet=2", "--option=APT::Update::Error-Mode=any")
        if not status:
            return
        for record in networks:
            uri = without_password(str(record["uri"])).rstrip("/")
            if uri.rpartition("@")[2].partition("://")[2] in output:
                raise NotResolvedError(apt_sources.explain_update(output, uri))
        raise self._failed(
            one_line(debs.problem(output), _SHOWN),
            f"all packages of {self.system}",
            f"correct the mirror (node_baseline_apt_mirror), or its login in {logins.path()}",
        )

    def _source(self, record: Record, name: str) -> str:
        """Write the pin and the key of a repository, as its role does on nodes; return the line of its source."""
        uri = source_word(str(record["uri"]), "the address of the repository")
        preferences = apt_sources.network_preferences(str(record["label"]), _PURPOSE)
        data = _key(record)
        pinned = [openpgp.normal(str(each)) for each in record["fingerprints"]]
        where = str(record["key_file"] or without_password(str(record["key_url"])))
        if wrong := check_key(data, pinned, where):
            raise NotResolvedError(*wrong)
        key = self.folder / f"etc/{name}.{'asc' if openpgp.is_armored(data) else 'gpg'}"
        key.write_bytes(data)
        (self.folder / f"etc/preferences.d/{name}.pref").write_text(preferences)
        return f"deb [signed-by={key}] {uri.rstrip('/')}/ /\n"

    def debs(self, wanted: Wanted) -> list[debs.Deb]:
        """Return what apt downloads. Raises NotResolvedError."""
        arguments = {*wanted.packages, *self._of_repositories(), *self._optional(wanted.optional)}
        if not arguments:
            return []
        status, output = self._run(*debs.arguments(list(arguments)))
        if status:
            raise self._failed(
                one_line(debs.problem(output), _SHOWN),
                f"all packages of {self.system}",
                "correct the name of the package, or the mirror (node_baseline_apt_mirror)",
            )
        return debs.read_uris(output)

    def _offers(self, names: Sequence[str]) -> tuple[dict[str, list[apt.Offer]], dict[str, dict[str, str]]]:
        lists = apt.read_lists(self._run("apt-cache", "policy")[1])
        # It fails when none of the packages is known.
        return apt.read_offers(self._run("apt-cache", "madison", "--", *names)[1], lists), lists

    def _optional(self, names: set[str]) -> list[str]:
        """Return those packages that the system has, and note the others."""
        offers = self._offers(sorted(names))[0] if names else {}
        why = f"the mirror of {self.system} has no such package"
        self.absent += [{"what": name, "why": why} for name in sorted(names - offers.keys())]
        return [name for name in names if name in offers]

    def _of_repositories(self) -> list[str]:
        """Return the packages of the records at their versions, as apt-get takes them. Raises NotResolvedError."""
        found: list[str] = []
        findings: list[Finding] = []
        for record in self.records:
            driver, packages = record.get("driver") or {}, record.get("packages") or ()
            roots = [*driver.get("roots", ()), *driver.get("optional", ())]
            names = {name for package in packages for name in repositories.names(package)}
            names.update(name for root in roots for name in root)
            offers, lists = self._offers(sorted({*names, *driver.get("pinning", ())}))
            source = repositories.source(record)
            if source.uri and not _has_label(record, lists):
                action = "correct nvidia_repository_label"
                found_label = f"{without_password(source.uri)} has another label"
                findings.append(Finding("package repository", found_label, repr(record["label"]), action))
            elif driver:
                arguments, wrong = self._driver(driver, offers, source)
                found, findings = found + arguments, findings + wrong
            else:
                arguments, wrong = _packages(packages, offers, source)
                found, findings = found + arguments, findings + wrong
        if findings:
            raise NotResolvedError(*dict.fromkeys(findings))
        return found

    def _driver(
        self, driver: Mapping[str, Any], offers: Mapping[str, Sequence[apt.Offer]], source: apt.Source
    ) -> tuple[list[str], list[Finding]]:
        """Return the packages of a driver, of which apt takes one version for all that belongs to it."""
        every = [*driver["roots"], *driver["optional"]]
        names = {name for root in every for name in root} | set(driver["pinning"])
        here = {name: [one.version for one in offers.get(name, ()) if source.offers(one)] for name in names}
        request = driver_packages.Request(driver["roots"], driver["pinning"], driver["version"], driver["branch"])
        choice = driver_packages.choose(request, here, str(source))
        if choice.findings:
            return [], choice.findings
        chosen = dict(choice.packages)
        for root in driver["optional"]:
            more = driver_packages.choose(request._replace(roots=[root], version=choice.version), here, str(source))
            chosen.update({} if more.findings else more.packages)
        pins = self.folder / f"etc/preferences.d/driver-{choice.version}.pref"
        pins.write_text(driver_packages.preferences(choice.version))
        return [f"{name}={version}" if version else name for name, version in chosen.items()], []


def _has_label(record: Record, lists: Mapping[str, Mapping[str, str]]) -> bool:
    """Return whether the lists of a repository have the label by which its role pins it."""
    uri = str(record["uri"])
    labels = [fields.get("l") for name, fields in lists.items() if apt.same_uri(name.split(" ")[0], uri)]
    return bool(labels) and set(labels) == {record["label"]}


def _packages(
    packages: Sequence[Record], offers: Mapping[str, Sequence[apt.Offer]], source: apt.Source
) -> tuple[list[str], list[Finding]]:
    """Return packages at the versions that are meant."""
    asked: list[dict[str, Any]] = [
        {"names": repositories.names(each), "version": each.get("version") or "", "begins": each.get("begins") or ""}
        for each in packages
    ]
    if missing := apt.missing(asked, offers, source):
        return [], missing
    chosen = [
        {
            "name": next(name for name in each["names"] if any(source.offers(one) for one in offers.get(name, ()))),
            "version": str(each["version"]),
        }
        for each in asked
    ]
    made = apt.plan(chosen, offers, apt.Installed({}, frozenset()), {}, source, False)
    return made.install, made.findings


def _key(record: Record) -> bytes:
    """Return the file with the key of a repository. Raises NotResolvedError."""
    url = str(record["key_url"])
    try:
        if record["key_file"]:
            return Path(str(record["key_file"])).expanduser().read_bytes()
        if urllib.parse.urlsplit(url).scheme not in ("http", "https", "file"):
            raise ValueError("no address that can be read")
        with urllib.request.urlopen(url, timeout=_SILENT_S) as answer:  # noqa: S310
            return bytes(answer.read(_KEY_BYTES))
    except (OSError, ValueError) as error:
        where = str(record["key_file"]) or without_password(url)
        found = one_line(f"{where}: {getattr(error, 'strerror', None) or error}", _SHOWN)
        action = "correct nvidia_repository_key_url or nvidia_repository_key_file, or start the mirror"
        raise NotResolvedError(Finding("key of the repository", found, "the key of the repository", action)) from error
