# SPDX-License-Identifier: Apache-2.0
"""Which packages a requested PyTorch is, and which Pythons it supports."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..base.findings import Finding, host_list
from .requirements import input_finding

# First and last Python of each release, from the compatibility matrix in PyTorch's RELEASE.md and from the wheels.
PYTHONS: Mapping[str, tuple[str, str]] = {
    "2.4": ("3.8", "3.12"),
    "2.5": ("3.9", "3.12"),
    **dict.fromkeys(("2.6", "2.7", "2.8"), ("3.9", "3.13")),
    **dict.fromkeys(("2.9", "2.10", "2.11", "2.12", "2.13"), ("3.10", "3.14")),
}
# The build that the usual package index has of a release on Linux. Its version does not name the build.
_USUAL_BUILD = {"2.13": "cu130"}
_PILLOW = "pillow==11.3.0"
# The installed sizes of the usual build and of the CPU build, in GB, with the packages that they need (2.13.0, x86_64).
_USUAL_GB, _CPU_GB = 4.7, 0.9


@dataclass(frozen=True)
class Settings:
    """The variables of the role pytorch that decide what is installed."""

    version: str
    build: str = ""
    torchvision: str = ""
    python_min: str = ""
    python_max: str = ""
    # Indexes and folders that the user names.
    sources: Sequence[str] = ()

    @property
    def release(self) -> str:
        """Return the minor release, such as 2.13."""
        return ".".join(self.version.split(".")[:2])


def input_findings(settings: Settings) -> Iterator[Finding]:
    """Yield what is wrong with the settings."""
    allowed = (
        ("version", r"\d+\.\d+\.\d+", "an exact release such as 2.13.0"),
        ("build", r"(cpu|cu\d{2,3}|rocm\d+\.\d+(\.\d+)?|)", "auto, '', cpu, or a build such as cu126"),
        ("torchvision", r"(auto|\d+\.\d+\.\d+|)", "auto, an exact release such as 0.28.0, or ''"),
    )
    for name, pattern, expected in allowed:
        value = getattr(settings, name)
        if not re.fullmatch(pattern, value):
            yield input_finding("pytorch", f"pytorch_{name} is {value!r}", expected)
    if settings.release not in PYTHONS and not (settings.python_min and settings.python_max):
        found = f"PyTorch {settings.version}, whose supported Pythons are not known here"
        yield input_finding(
            "pytorch", found, f"one of {', '.join(PYTHONS)}", "set pytorch_python_min and pytorch_python_max"
        )


def plan(settings: Settings) -> dict[str, Any]:
    """Return what to install for settings without findings."""
    unnamed = settings.build == _USUAL_BUILD.get(settings.release, "") and not any(settings.sources)
    local = f"+{settings.build}" if settings.build and not unnamed else ""
    least, most = PYTHONS.get(settings.release, ("", ""))
    versions = {"torch": "torch %s", "numpy": "numpy %s"}
    pins = [f"torch=={settings.version}{local}"]
    if settings.torchvision:
        _, minor, patch = settings.version.split(".")
        # 0.(M + 15).P belongs to torch 2.M.P.
        release = f"0.{int(minor) + 15}.{patch}" if settings.torchvision == "auto" else settings.torchvision
        pins += [f"torchvision=={release}{local}", _PILLOW]
        versions["torchvision"] = "torchvision %s"
    cuda = re.fullmatch(r"cu(\d+)(\d)", settings.build)
    return {
        "pins": pins,
        "python_min": settings.python_min or least,
        "python_max": settings.python_max or most,
        "versions": versions,
        "verify_environment": {"TRAINYARD_TORCHVISION": "1"} if settings.torchvision else {},
        # CUDA of the build, such as 12.6 of cu126.
        "cuda": f"{cuda[1]}.{cuda[2]}" if cuda else "",
    }


def choose(offers: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the build of hosts that leave it open (pytorch_build: auto), their `interpreters`, and a `note` or "".

    `offers` has by host the answer of trainyard_node/software/pytorch_offer.py. Nodes of one cluster need one build, so
    the CPU build (`cpu`) is for hosts none of which has an accelerator or the usual build, and all of which can get it.
    """
    chosen: dict[str, Any] = {"build": "", "interpreters": {}, "note": ""}
    if not may_be_cpu(offers):
        return chosen
    without = [host for host, offer in offers.items() if not offer["interpreter"]]
    if without:
        return {**chosen, "note": _note(list(offers), without)}
    return {**chosen, "build": "cpu", "interpreters": {host: offer["interpreter"] for host, offer in offers.items()}}


def may_be_cpu(offers: Mapping[str, Mapping[str, Any]]) -> bool:
    """Return whether there are hosts, and none of them has an accelerator or the usual build."""
    return bool(offers) and not any(offer["accelerators"] or offer["usual"] for offer in offers.values())


def _note(hosts: Sequence[str], without: Sequence[str]) -> str:
    return (
        f"PyTorch takes {_USUAL_GB} GB on {host_list(hosts)}, as pip on {host_list(without)} finds no CPU build of it "
        f"({_CPU_GB} GB): set pytorch_builds_url to PyTorch's own indexes or a mirror of them, or pytorch_build: cpu "
        "behind a mirror that has it"
    )
