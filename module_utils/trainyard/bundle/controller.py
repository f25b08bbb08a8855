# SPDX-License-Identifier: Apache-2.0
"""The controller in a lock: the packages of `.venv`, and on request those of the lab, for machines without internet.

A lock has them under `controller`, in the form of `systems`. Each Python is an environment: `python3.13`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ..base.findings import Finding
from . import systems
from .site_lock import Wanted
from .systems import System
from .wheels import Wheel

# The files of requirements/ that every controller needs.
_ALWAYS = ("pip", "controller")
# What needs packages of the system as well: the lab, with the release of its nodes, and `make test`, which uses one.
_LAB, _TEST = "lab", "test"
LAB_RELEASE = "debian-12"
# The packages of an empty system, beside those that are named.
_BASE = ("?essential", "apt")
_NAME = re.compile(r"(?P<system>.+?)(?:-python(?P<python>3\.\d+))?")
_ENTRY = re.compile(r"^(?P<pin>[a-z0-9][^\\\n]*)(?P<rest>(?:\\\n[ \t].*)*)", re.MULTILINE)
_REFERENCE = re.compile(r"^-r (?P<name>[a-z-]+)\.txt$", re.MULTILINE)


def pythons(
    given: Sequence[str], own: tuple[str, str], old: Mapping[str, Any] | None
) -> tuple[dict[System, list[str]], list[Finding]]:
    """Return the versions of Python of the controllers by system, and findings on names that are none.

    `given`: debian-12-x86_64, for its python3, or debian-12-x86_64-python3.13. Without names they are those of the lock
    `old`, so that it stays the same on another machine; else `own`, the system and the Python of this machine, which no
    lock has if its system is none of the supported ones.
    """
    own_name = [] if systems.named(own[0]) is None else ["-python".join(own)]
    locked = {
        f"{system}-{name}" for system, parts in (old or {}).get("controller", {}).items()
        for name in parts["environments"]
    }  # fmt: skip
    found: dict[System, list[str]] = {}
    findings = []
    for name in given or sorted(locked) or own_name:
        match = _NAME.fullmatch(name)
        system = systems.named(match["system"]) if match else None
        if match is None or system is None:
            action = "name the controllers with lock_controllers, such as debian-12-x86_64-python3.13"
            findings.append(Finding("controller", name, systems.supported(), action))
            continue
        version = match["python"] or system.python("python3")
        found[system] = sorted({*found.get(system, ()), version})
    return found, findings


def wanted(
    controllers: Mapping[System, Sequence[str]],
    also: Collection[str],
    files: Mapping[str, str],
    packages: Mapping[str, Sequence[str]],
) -> dict[System, Wanted]:
    """Return what the controllers are to get.

    `files`: texts of requirements/ by name, `also`: those that are wanted beside the usual ones, or `lab`. `packages`:
    those of the system for the `lab`, the lab's `nodes`, and the `browser` of the tests.
    """
    pins = requirements(files, [*_ALWAYS, *(name for name in also if name != _LAB)])
    found = {
        system: Wanted(
            set(), {f"python{version}": {"interpreter": f"python{version}", "packages": pins} for version in versions}
        )
        for system, versions in controllers.items()
    }
    if _LAB in also or _TEST in also:
        for system in controllers:
            found[system].packages.update(packages["lab"], packages["browser"] if _TEST in also else ())
            nodes = System(LAB_RELEASE, system.machine)
            found.setdefault(nodes, Wanted()).packages.update(_BASE, packages["nodes"])
    return found


def requirements(files: Mapping[str, str], names: Iterable[str]) -> list[str]:
    """Return the pins of files of requirements and of those that they refer to, each once, with their markers."""
    found: dict[str, None] = {}
    for name in names:
        references = [match["name"] for match in _REFERENCE.finditer(files[name])]
        found |= dict.fromkeys(requirements(files, references))
        found |= dict.fromkeys(match["pin"].strip() for match in _ENTRY.finditer(files[name]))
    return list(found)


def unknown(wheels: Iterable[Wheel], files: Mapping[str, str]) -> list[Finding]:
    """Return a finding on each wheel that `make` would refuse by its sum."""
    hashes = set(re.findall(r"--hash=sha256:([0-9a-f]{64})", "".join(files.values())))
    action = "name the index that requirements/ was written with: pip's index-url"
    return [
        Finding("controller", f"{wheel.file} with sha256 {wheel.sha256}", "a sum in requirements/", action)
        for wheel in wheels
        if wheel.sha256 not in hashes
    ]
