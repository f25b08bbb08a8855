# SPDX-License-Identifier: Apache-2.0
"""One host and the stack chosen for it, as the rules of NVIDIA's stack see them, and how rules report findings.

A rule yields results: whether the finding stops the run, and the finding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..base.findings import Finding
from . import nvidia_hardware
from .driver import has_module

Host = Mapping[str, Any]
Rules = Mapping[str, Any]
Row = Mapping[str, Any]
Parts = Mapping[str, Mapping[str, str]]
Result = tuple[bool, Finding]

# Newer than any branch, and any version of one.
NEWEST = 10**6


class Part(dict[str, str]):
    """The fields of one part of a stack; a field that is not set is empty."""

    def __missing__(self, field: str) -> str:
        """Return an empty text."""
        return ""

    @property
    def used(self) -> bool:
        """Whether something provides this part."""
        return self["provider"] not in ("", "none")


class Case:
    """One host and the parts chosen for it."""

    def __init__(self, node: Host, parts: Parts, rules: Rules) -> None:
        """Note the host's driver: the requested one, else the installed one."""
        self.facts, self.state, self.settings = node["facts"], node["driver"], node["settings"]
        self.rules = rules
        self.host: str = self.facts["host"]
        names = ("driver", "cuda", "nccl", "cudnn", "framework")
        self.driver, self.toolkit, self.nccl, self.cudnn, self.framework = (Part(parts.get(name, {})) for name in names)
        # Its version and build stay where an override says that there is none.
        self.framework = Part() if self.framework["name"] == "none" else self.framework
        self.provider = self.driver["provider"] or "none"
        # A host that is declared to have no GPU gets a driver only with without_gpu.
        self.without = str(self.settings["gpus"]) == "0" and not self.settings.get("without_gpu")
        if self.provider == "none":
            installed = str(self.state.get("version") or self.state.get("loaded") or "")
            self.version, self.branch = installed, nvidia_hardware.branch_of(installed)
            self.flavour = str(self.state.get("flavour") or "")
        else:
            self.version, self.branch = self.driver["version"], self.driver["branch"]
            self.flavour = self.driver["flavour"]
        kernels = self.settings.get("kernels")
        self.kernels: list[str] = [self.facts["kernel"]["running"]] if kernels is None else list(kernels)
        self.os = nvidia_hardware.described_os(self.facts)

    @property
    def driver_number(self) -> tuple[int, ...]:
        """The driver's version for comparisons; a branch alone counts as newer than all its versions."""
        return nvidia_hardware.number(self.version) if self.version else (int(self.branch or 0), NEWEST)

    @property
    def driver_name(self) -> str:
        """The driver for messages."""
        return self.version or (f"{self.branch}.x" if self.branch else "")

    @property
    def installs_driver(self) -> bool:
        """Whether a run installs a driver: the requested one is not there, or has no module for a kernel."""
        if self.provider == "none" or self.without:
            return False
        installed = str(self.state.get("version", ""))
        same = installed == self.version if self.version else self.branch in ("", nvidia_hardware.branch_of(installed))
        return not (installed and same and all(has_module(self.state, each) for each in self.kernels))

    def other_driver(self, least: int, most: int, others: Mapping[str, str]) -> str:
        """Return the settings by which the host gets a driver of a branch in this range, with others beside them."""
        branch = str(most if most < NEWEST else least)
        there = "upgrade it there (docs/nvidia.md), or " if self.provider == "none" else ""
        if self.provider == "runfile" or not row_of(self.rules, "network_repo", os=self.os):
            fields = {} if self.provider == "runfile" else {"provider": "runfile"}
            setting = override("driver", **fields, version="...", **others, url="...", sha256="...")
            return f"{there}take a runfile of branch {branch}: {setting}"
        distro = row_of(self.rules, "distro", os=self.os) if self.provider == "distro" else None
        packaged = [each for each in distro["drivers"] if least <= int(each) <= most] if distro else []
        if packaged or self.provider == "network_repo":
            return override("driver", branch=[*packaged, branch][0], version='""', **others)
        setting = override("driver", provider="network_repo", branch=branch, version='""', **others)
        return there + setting + also_replace(self.state, self.settings)

    def parts_from(self, provider: str) -> dict[str, bool]:
        """Return which of driver, CUDA and NCCL this host gets from a provider."""
        parts = {"cuda": self.toolkit, "nccl": self.nccl}
        driver = self.provider == provider and not self.without
        return {"driver": driver, **{name: part["provider"] == provider for name, part in parts.items()}}

    def source(self, row: Row) -> str:
        """Return the source of a row for a message."""
        text = str(self.rules["sources"].get(row["source"], row["source"]))
        return f" ({text}{'' if row.get('verified', True) else ', not verified here'})"

    def by_row(self, row: Row, check: str, found: str, expected: str, action: str) -> Result:
        """Return a finding of a row, which stops unless nobody has verified the row."""
        stop = bool(row.get("stop", row.get("verified", True)))
        return stop, Finding(check, found, expected + self.source(row), action, host=self.host)

    def stop(self, check: str, found: str, expected: str, action: str) -> Result:
        """Return a finding that stops."""
        return True, Finding(check, found, expected, action, host=self.host)

    def warn(self, check: str, found: str, expected: str, action: str) -> Result:
        """Return a finding that is shown and does not stop."""
        return False, Finding(check, found, expected, action, host=self.host)


def also_replace(state: Host, settings: Host) -> str:
    """Return what is set beside a driver from NVIDIA's repository if another one is installed; else nothing."""
    is_other = state.get("provider", "none") not in ("none", "network_repo", "unknown") and not settings.get("replace")
    return " with nvidia_driver_replace: true" if is_other else ""


def fetched(part: Part) -> dict[str, str]:
    """Return the fields that another version of a part needs as well, where it is a file: its address and its sum."""
    return {"url": "...", "sha256": "..."} if part["provider"] in ("archive", "runfile") else {}


def within(value: tuple[int, ...], bounds: Sequence[str], series: bool = False) -> bool:
    """Return whether a version is in a range of two texts, "" being open; in a series, 580 includes all of 580.x."""
    first, last = (nvidia_hardware.number(str(bound)) for bound in bounds)
    top = value[: len(last)] if series else value
    return (not first or value >= first) and (not last or top <= last)


def range_text(bounds: Sequence[str]) -> str:
    """Return a range as text: `525 or newer`."""
    first, last = (str(bound) for bound in bounds)
    if first and last:
        return f"{first} to {last}"
    return f"{first} or newer" if first else f"{last} or older"


def override(part: str, **fields: str) -> str:
    """Return the setting that changes fields of a part."""
    inner = ", ".join(f"{name}: {value}" for name, value in fields.items())
    return f"nvidia_stack_overrides: {{{part}: {{{inner}}}}}"


def row_of(rules: Rules, kind: str, **keys: str) -> Row | None:
    """Return the first row of a table with these values, or None."""
    matching = (row for row in rules[kind] if all(str(row.get(name)) == value for name, value in keys.items()))
    return next(matching, None)
