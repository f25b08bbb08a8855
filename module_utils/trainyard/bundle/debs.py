# SPDX-License-Identifier: Apache-2.0
"""Packages of Debian and Ubuntu that apt would install on an empty system, resolved on any machine that has apt.

It reads the output of apt-get of Debian 11 to 13 and Ubuntu.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from urllib.parse import unquote

from ..software.requirements import without_password
from ..software.words import source_word
from .systems import System

# A line of `apt-get install --print-uris`: address, name of the file, bytes, checksum.
_LINE = re.compile(r"'(?P<url>\S+)' (?P<file>\S+_\S+_\S+\.deb) (?P<bytes>\d{1,12}) SHA256:(?P<sha256>[0-9a-f]{64})")
# Where the distribution keeps its keys.
_KEYRINGS = {
    "debian": "/usr/share/keyrings/debian-archive-keyring.gpg",
    "ubuntu": "/usr/share/keyrings/ubuntu-archive-keyring.gpg",
}


@dataclass(frozen=True, order=True)
class Deb:
    """One package; `file` is its name as apt stores it."""

    name: str
    version: str
    architecture: str
    file: str
    url: str
    bytes: int
    sha256: str


def read_uris(output: str) -> list[Deb]:
    """Read what apt would download."""
    found = []
    for match in _LINE.finditer(output):
        name, version, architecture = match["file"].removesuffix(".deb").split("_", 2)
        found.append(
            Deb(
                name,
                unquote(version),
                architecture,
                match["file"],
                without_password(match["url"]),
                int(match["bytes"]),
                match["sha256"],
            )
        )
    return sorted(found)


def configuration(folder: PurePath, system: System, logins: PurePath) -> str:
    """Write a configuration by which apt sees an empty system in a folder, and just the logins of this machine."""
    places = {
        "Dir": folder,
        "Dir::State": folder,
        "Dir::State::lists": folder / "lists",
        "Dir::State::status": folder / "status",
        "Dir::Cache": folder,
        "Dir::Cache::archives": folder / "archives",
        "Dir::Etc": folder / "etc",
        "Dir::Etc::sourcelist": folder / "etc/sources.list",
        "Dir::Etc::sourceparts": "-",
        "Dir::Etc::netrc": logins,
        "Dir::Log": folder,
        "Dir::Bin::methods": "/usr/lib/apt/methods",
        "Dir::Bin::dpkg": "/usr/bin/dpkg",
        "APT::Architecture": system.architecture,
        "APT::Architectures": system.architecture,
        "APT::Install-Recommends": "false",
        "APT::Get::Show-User-Simulation-Note": "false",
        "Acquire::Languages": "none",
        "Acquire::ForceHash": "SHA256",
    }
    return "".join(f'{name} "{value}";\n' for name, value in places.items())


def mirrors(targets: Iterable[Mapping[str, str]], distribution: str) -> dict[str, str]:
    """Return the addresses of a distribution's mirrors among this machine's sources: `main`, and `security` if its own.

    `targets`: stanzas of `apt-get indextargets`.
    """
    found: dict[str, str] = {}
    for target in targets:
        suite, uri = target.get("release", ""), target.get("repo-uri", "")
        # Before its first update apt knows no origin; then the address has to do.
        origin = target.get("origin") or uri.rstrip("/").rpartition("/")[2].partition("-")[0]
        if origin.lower() == distribution and target.get("component") == "main" and uri:
            found.setdefault("security" if suite.endswith("-security") else "main", uri)
    return found


def sources(system: System, found: Mapping[str, str], further: Iterable[str] = ()) -> str:
    """Write the sources of a release at the addresses of `mirrors`: the release, its updates, security updates.

    `further`: components beside those that hosts have. Raises WordError.
    """
    option = f"[signed-by={_KEYRINGS[system.distribution]}]"
    # Ubuntu's other components hold much of what clusters use.
    usual = ["main"] if system.distribution == "debian" else ["main", "universe"]
    components = " ".join(dict.fromkeys([*usual, *(source_word(each, "a component") for each in further)]))
    found = {name: source_word(uri, f"the mirror {name}") for name, uri in found.items()}
    suites = {
        system.codename: found["main"],
        f"{system.codename}-updates": found["main"],
        f"{system.codename}-security": found.get("security", found["main"]),
    }
    return "".join(f"deb {option} {uri} {suite} {components}\n" for suite, uri in suites.items())


def problem(output: str) -> str:
    """Return the errors of apt in one line."""
    errors = [line.partition(": ")[2] or line for line in output.splitlines() if line.startswith(("E:", "W:", "Err:"))]
    return "; ".join(dict.fromkeys(errors)) or output.strip().rpartition("\n")[2] or "it printed nothing"


def arguments(packages: Sequence[str]) -> list[str]:
    """Return the call of apt-get that prints what it would download for packages."""
    return ["apt-get", "install", "--quiet=2", "--print-uris", "--", *sorted(set(packages))]
