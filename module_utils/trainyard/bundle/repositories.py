# SPDX-License-Identifier: Apache-2.0
"""Packages of a lock from a repository of their own, such as NVIDIA's, or from further components of the distribution.

A record is what the role nvidia_repository requests as `repository` of a part: `provider` (network_repo or distro),
`uri`, `label`, `key_url`, `key_file` and `fingerprints` of a repository, `components` and `origins` of the
distribution, and `packages` (`name` or alternative `names`, `version`, or how it `begins`) or `driver` (`roots`,
`optional`, `pinning`, `version`, `branch`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..software.apt import Source

Record = Mapping[str, Any]


def of_host(parts: Mapping[str, Mapping[str, Any]]) -> list[Record]:
    """Return the records of a host that ask for something."""
    found = [part.get("repository") or {} for part in parts.values()]
    return [record for record in found if record.get("packages") or record.get("driver")]


def names(package: Record) -> list[str]:
    """Return the alternative names of a package."""
    return [str(name) for name in package.get("names") or [package["name"]]]


def all_names(records: Iterable[Record]) -> set[str]:
    """Return all names of packages that records ask apt for."""
    found = set[str]()
    for record in records:
        driver = record.get("driver") or {}
        roots = [name for root in (*driver.get("roots", ()), *driver.get("optional", ())) for name in root]
        found.update(roots, map(str, driver.get("pinning", ())))
        found.update(name for package in record.get("packages") or () for name in names(package))
    return found


def lines(records: Iterable[Record]) -> list[str]:
    """Return all that decides which packages a host gets from its repositories, one line each, sorted.

    The address is left out, as that of the distribution's mirror is: with another mirror a lock stays as it is.
    """
    found = set()
    for record in records:
        driver, provider = record.get("driver") or {}, record["provider"]
        for package in record.get("packages") or ():
            version = package.get("version") or (f"{package['begins']}*" if package.get("begins") else "")
            found.add(f"{'|'.join(names(package))}{'=' if version else ''}{version} ({provider})")
        if driver:
            roots = [*map("|".join, driver["roots"]), *(f"[{'|'.join(each)}]" for each in driver["optional"])]
            version = driver["version"] or f"{driver['branch'] or ''}*"
            found.add(f"driver {version}: {' '.join([*roots, *driver['pinning'][:1]])} ({provider})")
    return sorted(found)


def add(there: list[list[Record]], records: list[Record]) -> None:
    """Add the records of a host, unless another host has the same."""
    if records and lines(records) not in [lines(each) for each in there]:
        there.append(records)


def lacking(records: Iterable[Record], locked: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a host that no one set of a lock has together; all of them where each is there alone."""
    asked = lines(records)
    if any(set(asked) <= set(each) for each in locked):
        return []
    everywhere = {line for each in locked for line in each}
    return [line for line in asked if line not in everywhere] or asked


def components(records: Iterable[Record]) -> list[str]:
    """Return the further components of the distribution that records want."""
    found = [name for record in records if record["provider"] == "distro" for name in record["components"]]
    return list(dict.fromkeys(found))


def source(record: Record) -> Source:
    """Return the source that counts for a record."""
    return Source(str(record["uri"]) if record["provider"] == "network_repo" else "", tuple(record["origins"]))


def of_network(records: Iterable[Record]) -> list[Record]:
    """Return one record for each repository beside the distribution's."""
    found = {str(record["uri"]): record for record in records if record["provider"] == "network_repo"}
    return list(found.values())
