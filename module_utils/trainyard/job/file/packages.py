# SPDX-License-Identifier: Apache-2.0
"""Read job_packages: names of Python packages, and the versions that a job needs of them, such as `numpy>=1.26`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ...findings.findings import Finding

_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9](?:[\w.-]{0,98}[A-Za-z0-9])?)\s*([=!<>~].{0,200})?", re.ASCII)
_CLAUSE = re.compile(
    r"\s*(==|!=|>=|<=|~=|>|<)\s*v?(\d{1,9}(?:\.\d{1,9}){0,7})((?:\.?(?:a|b|rc|dev|post)\d{0,9}){0,3}|\.\*)\s*"
)
_VERSION = re.compile(r"v?(?:\d{1,9}!)?(\d{1,9}(?:\.\d{1,9}){0,7})([^+]*)")
# Order of what follows the numbers of a version: 2.0.dev1, 2.0rc1, 2.0, 2.0.post1.
_LATER = ((".dev", -2), ("dev", -2), ("a", -1), ("b", -1), ("rc", -1), (".post", 1), ("post", 1))
_EXAMPLE = "names of packages such as torch or numpy>=1.26,<3"


def names(words: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the packages, without versions; words that are no requirement stay as they are."""
    matches = ((word, _REQUIREMENT.fullmatch(word)) for word in words)
    return tuple(match[1] if match else word for word, match in matches)


def limits(words: Iterable[str], scheduler: str, findings: list[Finding]) -> dict[str, str]:
    """Return the versions that are needed, by name of the package; add a finding for each word that is none."""
    needed: dict[str, str] = {}
    for word in words:
        match = _REQUIREMENT.fullmatch(word)
        text = match[2] if match else None
        if match is None or (text and not all(map(_CLAUSE.fullmatch, text.split(",")))):
            findings.append(Finding("job_packages", repr(word)[:200], _EXAMPLE, "correct job_packages"))
        elif text and scheduler != "ssh":
            found = f"{word} with job_scheduler: {scheduler}, which checks no versions"
            findings.append(Finding("job_packages", found, "a name alone", f"write {match[1]}"))
        elif text:
            needed[match[1]] = text.strip()
    return needed


def fits(version: str, needed: str) -> bool:
    """Return whether a version is among those needed; its local part, such as +cu128, does not count."""
    return all(_holds(version, *match.groups()) for match in map(_CLAUSE.fullmatch, needed.split(",")) if match)


def _holds(version: str, operator: str, numbers: str, rest: str) -> bool:
    own, other = _key(version), _key(numbers + ("" if rest == ".*" else rest))
    size = numbers.count(".") + 1
    if operator == "~=":
        return own >= other and _numbers(version)[: size - 1] == _numbers(numbers)[: size - 1]
    if rest == ".*" and operator in ("==", "!="):
        return (_numbers(version)[:size] == _numbers(numbers)[:size]) == (operator == "==")
    holds = {"==": own == other, "!=": own != other, ">=": own >= other, "<=": own <= other, ">": own > other}
    return holds.get(operator, own < other)


def _numbers(version: str) -> tuple[int, ...]:
    match = _VERSION.match(version)
    found = tuple(map(int, match[1].split("."))) if match else ()
    return (*found, *(0,) * (8 - len(found)))


def _key(version: str) -> tuple[tuple[int, ...], int, int]:
    match = _VERSION.match(version)
    rest = match[2] if match else ""
    later = next((order for start, order in _LATER if rest.startswith(start)), 0)
    number = re.search(r"\d{1,9}", rest)
    return _numbers(version), later, int(number[0]) if number and later else 0
