# SPDX-License-Identifier: Apache-2.0
"""The operating systems whose software can be locked from another machine, by name: `debian-12-x86_64`.

Just wheels can be locked for any other Linux, by its C library: `glibc-2.34-aarch64`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ..base.findings import Finding

# Debian's names of architectures, by the kernel's.
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
# By distribution and release: codename, version of python3, minor release of glibc 2.
_RELEASES = {
    "debian-11": ("bullseye", "3.9", 31),
    "debian-12": ("bookworm", "3.11", 36),
    "debian-13": ("trixie", "3.13", 41),
    "ubuntu-22.04": ("jammy", "3.10", 35),
    "ubuntu-24.04": ("noble", "3.12", 39),
}
_ANY_LINUX = re.compile(r"glibc-2\.(\d{1,2})")
# uv knows platforms up to this one.
_NEWEST_GLIBC = 40
_NAME = re.compile(r"(?P<release>[a-z]+-[\d.]+)-(?P<machine>[a-z0-9_]+)")


@dataclass(frozen=True)
class System:
    """An operating system: `release` as in debian-12 or glibc-2.34, `machine` as uname says it."""

    release: str
    machine: str

    def __str__(self) -> str:
        """Return its name, by which it is found again."""
        return f"{self.release}-{self.machine}"

    @property
    def distribution(self) -> str:
        """Return `debian` or `ubuntu`, and `glibc` for any other Linux."""
        return self.release.partition("-")[0]

    @property
    def architecture(self) -> str:
        """Return Debian's name of the architecture."""
        return ARCHITECTURES[self.machine]

    @property
    def codename(self) -> str:
        """Return the release's name, as in the sources of apt."""
        return _RELEASES[self.release][0]

    @property
    def has_packages(self) -> bool:
        """Return whether its packages can be locked."""
        return self.release in _RELEASES

    @property
    def platform(self) -> str:
        """Return the platform of wheels, as uv names it."""
        other = _ANY_LINUX.fullmatch(self.release)
        glibc = int(other[1]) if other else _RELEASES[self.release][2]
        return f"{self.machine}-manylinux_2_{min(glibc, _NEWEST_GLIBC)}"

    def python(self, interpreter: str) -> str:
        """Return the version of an interpreter by its name: that of the system's python3, or the one in the name.

        It is "" where the version of the system's python3 is not known.
        """
        named = re.search(r"python(3\.\d+)$", interpreter)
        return named[1] if named else _RELEASES[self.release][1] if self.has_packages else ""

    @property
    def facts(self) -> dict[str, str]:
        """Return what Ansible's setup would find, as far as roles choose packages by it."""
        version = self.release.partition("-")[2]
        if not self.has_packages:
            return {"architecture": self.machine, "distribution": "glibc", "distribution_major_version": version}
        return {
            "architecture": self.machine,
            "distribution": self.distribution.capitalize(),
            "distribution_major_version": version.partition(".")[0],
            "distribution_release": self.codename,
            "distribution_version": version,
            "os_family": "Debian",
            "pkg_mgr": "apt",
        }


def named(name: str) -> System | None:
    """Return a system by its name; None for one that is not supported."""
    match = _NAME.fullmatch(name)
    if match is None or match["machine"] not in ARCHITECTURES:
        return None
    if match["release"] not in _RELEASES and not _ANY_LINUX.fullmatch(match["release"]):
        return None
    return System(match["release"], match["machine"])


def of_facts(facts: Mapping[str, str]) -> str:
    """Return the name of the system that Ansible's setup found."""
    distribution = str(facts.get("distribution", "unknown")).lower()
    version = str(facts.get("distribution_version" if distribution == "ubuntu" else "distribution_major_version", ""))
    return f"{distribution}-{version}-{facts.get('architecture', 'unknown')}"


def unsupported(name: str, host: str) -> Finding:
    """Return the finding on a system whose software cannot be locked."""
    action = (
        "correct trainyard_system, leave this host out with --limit, or set trainyard_manage_system: false, with which "
        "just wheels are locked, for any Linux"
    )
    return Finding("system", name, supported(), action, host)


def supported() -> str:
    """Name the systems whose software can be locked."""
    names = f"{', '.join(_RELEASES)}, or glibc-2.34 and the like"
    return f"{names}, each followed by {' or '.join(f'-{each}' for each in ARCHITECTURES)}"


def of_hosts(
    facts: Mapping[str, Mapping[str, str]], libraries: Mapping[str, str]
) -> tuple[dict[str, System], list[Finding]]:
    """Return the systems of hosts by their facts, and findings on those that are not supported.

    `libraries` has the C library, as in glibc-2.34, of hosts whose system's packages are not touched.
    """
    names = {host: of_facts(each) for host, each in facts.items()}
    for host, library in libraries.items():
        if named(names[host]) is None and _ANY_LINUX.fullmatch(library):
            names[host] = f"{library}-{facts[host].get('architecture', 'unknown')}"
    found = {host: system for host, name in names.items() if (system := named(name))}
    return found, [unsupported(name, host) for host, name in names.items() if host not in found]
