# SPDX-License-Identifier: Apache-2.0
"""Describe what tasks have installed or downloaded: `n1, n2: installed torch 2.9.0 and 21 others (1.2 GiB) in 48 s`.

The modules of this project return `installed`: `packages` (name and version, the most important one first) and `bytes`.
From apt, dnf and get_url (action download) only their own results are there. Sizes are bytes, times are seconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from ..base.findings import counted, host_list

_UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9}
_SET_UP = re.compile(r"^Setting up (?P<name>[^\s:]+)(?::\S+)? \((?P<version>[^\s)]+)\) \.\.\.", re.MULTILINE)
# The second form is that of apt 3.
_SPACE = re.compile(
    r"^(?:After this operation, (?P<old>[\d.,]+) (?P<old_unit>[kMG]?B) of additional disk space will be used"
    r"|\s*Space needed: (?P<new>[\d.,]+) (?P<new_unit>[kMG]?B))",
    re.MULTILINE,
)
_RPM = re.compile(r"^Installed: (?P<name>\S+)")


def size_text(size: int) -> str:
    """Return a size in words: `57 KiB`, `812 MiB`, `1.2 GiB`."""
    for unit, shift in (("GiB", 30), ("MiB", 20)):
        if size >= 1 << shift:
            value = size / (1 << shift)
            return f"{value:.1f}".removesuffix(".0") + f" {unit}" if value < 10 else f"{value:.0f} {unit}"
    return f"{-(-size // 1024)} KiB"


def share_text(done: int, total: int, seconds: float, unit: str = "") -> str:
    """Return how far a transfer is after so many seconds: `212 MiB of 812 MiB, 11 MiB/s, 57 s left`; 0 is no total.

    With a unit these are no bytes: `12 of 50 packages, 2/s, 19 s left`.
    """
    if unit:
        parts = [f"{done} of {counted(total, unit)}" if total >= max(done, 1) else counted(done, unit)]
    else:
        parts = [f"{size_text(done)} of {size_text(total)}" if total >= done else size_text(done)]
    if done and seconds >= 1:
        rate = done / seconds
        if not unit:
            parts.append(f"{size_text(int(rate))}/s")
        elif rate >= 1:
            parts.append(f"{rate:.0f}/s")
        # What follows the last package is not counted.
        parts += [f"{seconds_text((total - done) / rate)} left"] if total >= done + bool(unit) else []
    return ", ".join(parts)


def seconds_text(seconds: float) -> str:
    """Return a duration in words: `less than 1 s`, `48 s`, `2 min 5 s`."""
    whole = round(seconds)
    if not whole:
        return "less than 1 s"
    return f"{whole} s" if whole < 100 else f"{whole // 60} min {whole % 60} s"


def packages_text(packages: Sequence[str], size: int | None = None) -> str:
    """Return packages in words, by the first one: `torch 2.9.0 and 21 others (1.2 GiB)`; "" without packages."""
    if not packages:
        return ""
    others = f" and {counted(len(packages) - 1, 'other')}" if packages[1:] else ""
    return f"{packages[0]}{others}" + (f" ({size_text(size)})" if size else "")


def by_apt(output: str, requested: Sequence[str] = ()) -> dict[str, Any]:
    """Return `packages` and `bytes` from the output of apt-get; a requested package comes first."""
    versions = {match["name"]: match["version"] for match in _SET_UP.finditer(output)}
    names = [name for name in (each.partition("=")[0] for each in requested) if name in versions]
    space = _SPACE.search(output)
    found: dict[str, Any] = {"packages": [f"{name} {versions[name]}" for name in dict.fromkeys([*names, *versions])]}
    if space:
        number, unit = space["old"] or space["new"], space["old_unit"] or space["new_unit"]
        found["bytes"] = int(float(number.replace(",", "")) * _UNITS[unit])
    return found


def _requested(result: Mapping[str, Any]) -> list[str]:
    """Return the packages that a task of Ansible's modules for packages has named."""
    arguments = (result.get("invocation") or {}).get("module_args") or {}
    names = arguments.get("name") or arguments.get("package") or []
    return [str(name) for name in ([names] if isinstance(names, str) else names)]


def done_text(action: str, result: Mapping[str, Any]) -> str:
    """Return what a task has installed or downloaded; "" for nothing. `action` is the name of its module."""
    if action == "download":
        size, name = result.get("size"), urlsplit(str(result.get("url", ""))).path.rpartition("/")[2]
        # A file that was there already is not downloaded; only the message tells.
        downloaded = str(result.get("msg", "")).startswith("OK") and name
        return f"downloaded {name} ({size_text(size)})" if downloaded and isinstance(size, int) else ""
    record = result.get("installed") if result.get("changed", True) else None
    if action in ("apt", "package", "dnf", "yum") and result.get("changed"):
        record = by_apt(str(result.get("stdout", "")), _requested(result))
        rpms = [match["name"] for match in map(_RPM.match, map(str, result.get("results") or ())) if match]
        record["packages"] = record["packages"] or rpms
    if not isinstance(record, Mapping) or not isinstance(record.get("packages"), Sequence):
        return ""
    size = record.get("bytes")
    text = packages_text([str(each) for each in record["packages"]], size if isinstance(size, int) else None)
    return f"installed {text}" if text else ""


def lines(done: Iterable[tuple[str, str, float]]) -> list[str]:
    """Return a line for each text that hosts have in common, from host, text and seconds of each."""
    groups: dict[str, list[tuple[str, float]]] = {}
    for host, text, seconds in done:
        groups.setdefault(text, []).append((host, seconds))
    found = []
    for text, each in groups.items():
        least, most = (seconds_text(choose(seconds for _, seconds in each)) for choose in (min, max))
        took = most if least == most else f"{least} to {most}"
        found.append(f"{host_list([host for host, _ in each])}: {text} in {took}")
    return found
