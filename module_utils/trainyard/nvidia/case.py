# SPDX-License-Identifier: Apache-2.0
"""One host and the stack chosen for it, as the rules of NVIDIA's stack look at them, and how these say what they find.

Pure. A rule yields whether what it found stops, and the finding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..findings.findings import Finding
from . import driver as nvidia_driver
from . import hardware as nvidia

Host = Mapping[str, Any]
Rules = Mapping[str, Any]
Row = Mapping[str, Any]
Parts = Mapping[str, Mapping[str, str]]
Said = tuple[bool, Finding]

# Newer than any version of a branch.
_NEWEST = 10**6


class Case:
    """One host and the set chosen for it, as the rules look at them."""

    def __init__(self, node: Host, parts: Parts, rules: Rules) -> None:
        """Bring together what is known of the host's driver: the one that is wanted, else the one that is there."""
        self.facts, self.state, self.wanted, self.parts, self.rules = (
            node["facts"],
            node["driver"],
            node["wanted"],
            parts,
            rules,
        )
        self.host: str = self.facts["host"]
        self.driver = parts.get("driver", {})
        self.provider = self.driver.get("provider", "none")
        # A host that is declared to have no GPU gets a driver only where that is asked for.
        self.without = str(self.wanted["gpus"]) == "0" and not self.wanted.get("without_gpu")
        if self.provider == "none":
            there = str(self.state.get("version") or self.state.get("loaded") or "")
            self.version, self.branch = there, nvidia.branch_of(there)
            self.flavour = str(self.state.get("flavour") or "")
        else:
            self.version, self.branch = self.driver.get("version", ""), self.driver.get("branch", "")
            self.flavour = self.driver.get("flavour", "")
        kernels = self.wanted.get("kernels")
        self.kernels: list[str] = [self.facts["kernel"]["running"]] if kernels is None else list(kernels)
        self.os = nvidia.described_os(self.facts)

    @property
    def driver_number(self) -> tuple[int, ...]:
        """The driver's version for comparing; of a branch alone, what is newer than all of it."""
        return nvidia.number(self.version) if self.version else (int(self.branch or 0), _NEWEST)

    @property
    def driver_name(self) -> str:
        """The driver in words."""
        return self.version or (f"{self.branch}.x" if self.branch else "")

    @property
    def is_installed(self) -> bool:
        """Whether the wanted driver is there already, with its module for every kernel."""
        there = str(self.state.get("version", ""))
        right = there == self.version if self.version else self.branch in ("", nvidia.branch_of(there))
        return bool(there and right) and all(nvidia_driver.has_module(self.state, kernel) for kernel in self.kernels)

    @property
    def installs_driver(self) -> bool:
        """Whether a run is to install a driver on this host."""
        return self.provider != "none" and not self.without and not self.is_installed

    def source(self, row: Row) -> str:
        """Where a row comes from, for a message."""
        text = str(self.rules["sources"].get(row["source"], row["source"]))
        return f" ({text}{'' if row.get('verified', True) else ', not verified here'})"

    def say(self, row: Row, check: str, found: str, expected: str, action: str) -> Said:
        """Say what a row finds: it stops, unless nobody has verified the row."""
        stop = bool(row.get("stop", row.get("verified", True)))
        return stop, Finding(check, found, expected + self.source(row), action, host=self.host)

    def stop(self, check: str, found: str, expected: str, action: str) -> Said:
        """Say what stops."""
        return True, Finding(check, found, expected, action, host=self.host)

    def warn(self, check: str, found: str, expected: str, action: str) -> Said:
        """Say what is shown and does not stop."""
        return False, Finding(check, found, expected, action, host=self.host)


def within(value: tuple[int, ...], bounds: Sequence[str], series: bool = False) -> bool:
    """Tell whether a version is in a range of two texts, "" being open; of a series, 580 holds all of 580.x."""
    first, last = (nvidia.number(str(bound)) for bound in bounds)
    top = value[: len(last)] if series else value
    return (not first or value >= first) and (not last or top <= last)


def in_words(bounds: Sequence[str]) -> str:
    """Say a range: `525 or newer`."""
    first, last = (str(bound) for bound in bounds)
    if first and last:
        return f"{first} to {last}"
    return f"{first} or newer" if first else f"{last} or older"


def override(part: str, **fields: str) -> str:
    """Say how a field of a part is set."""
    inner = ", ".join(f"{name}: {value}" for name, value in fields.items())
    return f"nvidia_stack_overrides: {{{part}: {{{inner}}}}}"


def row_of(rules: Rules, kind: str, **keys: str) -> Row | None:
    """Return the row of a table that has these values, None without one."""
    matching = (row for row in rules[kind] if all(str(row.get(name)) == value for name, value in keys.items()))
    return next(matching, None)
