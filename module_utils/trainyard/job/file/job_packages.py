# SPDX-License-Identifier: Apache-2.0
"""Read job_packages: names of Python packages, and the versions that a job needs of them, such as `numpy>=1.26`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...base.findings import Finding

if TYPE_CHECKING:
    from packaging.requirements import Requirement

_EXAMPLE = "names of packages such as torch or numpy>=1.26,<3"


def _read(word: str) -> Requirement | None:
    # ansible-core brings the package packaging; the hosts of an allocation get it with their program.
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        found = Requirement(word)
    except InvalidRequirement:
        return None
    return None if found.url or found.marker or found.extras else found


def names(words: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the packages, without versions; words that are no requirement stay as they are."""
    return tuple(found.name if (found := _read(word)) else word for word in words)


def limits(words: Iterable[str], scheduler: str, findings: list[Finding]) -> dict[str, str]:
    """Return the versions that are needed, by name of the package; add a finding for each word that is none."""
    needed: dict[str, str] = {}
    for word in words:
        found = _read(word)
        if found is None:
            findings.append(Finding("job_packages", repr(word)[:200], _EXAMPLE, "correct job_packages"))
        elif found.specifier and scheduler == "kubernetes":
            versions = f"{word} with job_scheduler: {scheduler}, which checks no versions"
            findings.append(Finding("job_packages", versions, "a name alone", f"write {found.name}"))
        elif found.specifier:
            needed[found.name] = str(found.specifier)
    return needed


def fits(version: str, needed: str) -> bool:
    """Return whether a version is among those needed; its local part, such as +cu128, does not count."""
    from packaging.specifiers import SpecifierSet
    from packaging.version import InvalidVersion

    try:
        return not needed or SpecifierSet(needed).contains(version, prereleases=True)
    except InvalidVersion:
        return False
