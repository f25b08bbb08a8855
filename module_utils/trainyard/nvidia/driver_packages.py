# SPDX-License-Identifier: Apache-2.0
"""Which packages make one version of the driver: on a node whose apt knows them, and for a lock without any node."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..base.findings import Finding
from ..software import apt
from .driver_plan import OWN_VERSIONS, choose_version, offers, pinning_packages, requested_branch, roots

# Package names of a version in the archives of NVIDIA, Debian and Ubuntu.
_NAMES = "*nvidia* cuda-drivers* libcuda1 libcudadebugger1 libnvcuvid1 libnvoptix1"
_KERNEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+~-]*")


class Request(NamedTuple):
    """A driver: `roots` are lists of names of which the first that is offered is meant, the kernel module's first."""

    roots: Sequence[Sequence[str]]
    pinning: Sequence[str]
    version: str
    branch: str


class Choice(NamedTuple):
    """The version of a driver, its packages with their versions (empty for any), and findings."""

    version: str
    packages: dict[str, str]
    findings: list[Finding]


def choose(request: Request, here: Mapping[str, Sequence[str]], source: str) -> Choice:
    """Choose the version and the requested packages; `here`: what the source offers of each name, newest first."""
    findings, chosen = [], {}
    upstream, branch = request.version, request.branch
    for number, names in enumerate(request.roots):
        # The first decides; of packages with versions of their own, such as Debian's nvidia-modprobe, any will do.
        name = next((name for name in names if choose_version(here[name], upstream, branch)), "")
        if name:
            chosen[name] = choose_version(here[name], upstream, branch)
            upstream = upstream or apt.upstream(chosen[name])
        elif number and names[0] in OWN_VERSIONS and any(here[name] for name in names):
            chosen[next(name for name in names if here[name])] = ""
        else:
            there = [f"{name} {', '.join(here[name][:8])}" for name in names if here[name]]
            expected = upstream or (f"branch {branch}" if branch else "any version")
            found = f"{source} offers {'; '.join(there) or 'none'}"
            action = "correct nvidia_driver_version or nvidia_driver_branch, or bring the repository to where it has it"
            findings.append(Finding(f"package {' or '.join(names)}", found, expected, action))
            if not number:
                break
    if not findings:
        chosen.update({name: here[name][0] for name in request.pinning[:1] if here[name]})
    return Choice(upstream, chosen, findings)


def preferences(upstream: str) -> str:
    """Write pins by which apt takes one version of whatever belongs to the driver: NVIDIA's packages ask for >= it."""
    return f"Package: {_NAMES}\nPin: version {upstream}-*\nPin-Priority: 1100\n"


def locked(
    settings: Mapping[str, Any], distribution: str, headers: bool, build_packages: Sequence[str]
) -> dict[str, Any]:
    """Return what a lock is to hold of a driver.

    `driver`: the fields of Request, and `optional`, roots that are taken where they are offered; `packages`,
    `optional_packages` (only if the system has them) and `missing` (what, why). `settings` as for driver_plan.offers;
    of its kernels an empty one is unknown. `headers`: whether the role installs the kernels' headers.
    """
    nothing: dict[str, Any] = {"driver": {}, "packages": [], "optional_packages": [], "missing": []}
    runfile = settings["provider"] == "runfile" and settings["state"] == "present"
    unused = str(settings["gpus"]) == "0" and not settings["without_gpu"]
    if unused or not (runfile or offers(settings)):
        return nothing
    found = nothing
    if runfile:
        found = {**found, "packages": list(build_packages) if settings["kernels"] else []}
    else:
        branch, fabric_manager = requested_branch(settings), str(settings["fabric_manager"])
        plain, whole = (roots({"id": distribution}, settings, manager) for manager in (False, True))
        driver = {
            "roots": whole if fabric_manager == "true" else plain,
            # Whether the node has NVSwitches is known only there.
            "optional": [each for each in whole if each not in plain] if fabric_manager == "auto" else [],
            "pinning": pinning_packages(settings["version"], branch) if settings["provider"] == "network_repo" else [],
            "version": settings["version"],
            "branch": branch,
        }
        found = {**found, "driver": driver}
    kernels = [str(kernel) for kernel in settings["kernels"]] if headers else []
    known = [f"linux-headers-{kernel}" for kernel in kernels if _KERNEL.fullmatch(kernel)]
    why = "it is known on the host alone: run lock.yml without trainyard_system, or set nvidia_driver_kernels"
    missing = [{"what": "headers of the running kernel", "why": why}] if "" in kernels else []
    return {**found, "optional_packages": known, "missing": missing}
