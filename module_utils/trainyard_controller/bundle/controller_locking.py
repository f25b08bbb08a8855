# SPDX-License-Identifier: Apache-2.0
"""Resolve the controller's own part of a lock."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...trainyard.base.findings import Finding
from ...trainyard.bundle import controller, site_lock, systems
from ..runs.project import ROOT
from . import site_locking

_REQUIREMENTS = ROOT / "requirements"
_PACKAGES = {
    "lab": "molecule/default/packages",
    "nodes": "molecule/default/image/packages",
    "browser": "tests/browser/packages",
}


@dataclass
class Request:
    """Names of controllers, and the targets of make that they can run, too."""

    controllers: Sequence[str]
    also: Sequence[str]


def resolve(
    request: Request,
    previous: site_lock.Lock | None,
    fresh: bool,
    mirror: Mapping[str, str],
    show: Callable[[str], None],
) -> tuple[dict[str, Any], list[Finding]]:
    """Return the lock's part `controller`, and findings; parts of the lock `previous` stay unless `fresh` is set."""
    pythons, findings = controller.pythons(request.controllers, (_own_system(), _own_python()), previous)
    if findings:
        return {}, findings
    files = {path.stem: path.read_text(encoding="utf-8") for path in _REQUIREMENTS.glob("*.txt")}
    packages = {name: (ROOT / path).read_text(encoding="utf-8").split() for name, path in _PACKAGES.items()}
    wanted = controller.wanted(pythons, request.also, files, packages)
    old = None if fresh or previous is None else {"systems": previous.get("controller") or {}}
    kept = site_lock.unchanged(old, wanted)
    left = site_lock.without(wanted, kept)
    found = site_locking.resolve(left, mirror, lambda line: show(f"controller {line}"))
    if found.findings:
        return {}, found.findings
    wheels = [wheel for listed in found.wheels.values() for wheel in listed]
    return site_lock.resolved(wanted, kept, found.debs, found.wheels), controller.unknown(wheels, files)


def _own_python() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _own_system() -> str:
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        release = {"ID": sys.platform}
    version = release.get("VERSION_ID", "")
    facts = {
        "distribution": release.get("ID", ""),
        "distribution_version": version,
        "distribution_major_version": version.partition(".")[0],
        "architecture": platform.machine(),
    }
    return systems.of_facts(facts)
