# SPDX-License-Identifier: Apache-2.0
"""OneFlow's releases: their Pythons, CUDA releases, sources, and the packages that each of them needs.

From metadata and file names of the wheels in the package index, and from README, setup.py and release workflow of each
tag of OneFlow's repository. 0.8.0 and 0.9.0 were run by trainyard on CPU with Python 3.9, no other was.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ..base.findings import Finding
from .requirements import input_finding, too_new_findings, version_numbers, wheel_setting_findings

_finding = partial(input_finding, "oneflow")
# OneFlow uses np.bool and the like, and code that an old protoc generated.
_TOO_NEW = {"numpy": "1.24", "protobuf": "3.21"}


@dataclass(frozen=True)
class Release:
    """One release; `pythons` are the first and the last for which it and `oneflow_packages` have wheels."""

    pythons: tuple[str, str]
    # Whether the package index has it; the others are on a page of their own, RELEASE_PAGE.
    in_index: bool = False
    # Its builds: the local part of the version (0.7.0+cu112).
    builds: tuple[str, ...] = ()
    # CUDA's libraries that the wheel is linked with, but neither holds nor depends on. Without them not even a program
    # for the CPU can import it.
    libraries: tuple[str, ...] = ()
    # Upper bounds of packages that it does not work with. Its metadata allows them.
    below: Mapping[str, str] = field(default_factory=lambda: _TOO_NEW)


RELEASE_PAGE = "https://release.oneflow.info"
_TO_CUDA_11_2 = ("cu100", "cu101", "cu102", "cu110", "cu111", "cu112", "cpu")
_CUDA_10_2_AND_11_2 = ("cu102", "cu112", "cpu")

RELEASES: Mapping[str, Release] = {
    "0.5.0": Release(pythons=("3.8", "3.8"), builds=_TO_CUDA_11_2),
    "0.6.0": Release(pythons=("3.8", "3.9"), builds=_TO_CUDA_11_2),
    "0.7.0": Release(pythons=("3.8", "3.10"), builds=_CUDA_10_2_AND_11_2),
    # The index has the one for CUDA 10.2, which holds CUDA's libraries.
    "0.8.0": Release(pythons=("3.8", "3.10"), in_index=True, builds=_CUDA_10_2_AND_11_2),
    "0.9.0": Release(
        pythons=("3.8", "3.10"),
        in_index=True,
        builds=("cu102", "cu112", "cu117", "cu118", "cpu"),
        libraries=("nvidia-cublas-cu11==11.10.3.66", "nvidia-cudnn-cu11==8.5.0.96"),
    ),
    "1.0.0": Release(pythons=("3.8", "3.11"), builds=("cu118", "cpu")),
}
# The oldest release that the role's check and the launch module work with.
_FIRST = (0, 5)


@dataclass(frozen=True)
class Settings:
    """The variables of the role oneflow that decide what is installed; empty where they have their default."""

    version: str
    wheel_url: str = ""
    wheel_sha256: str = ""
    packages: Sequence[str] = ()
    python_min: str = ""
    python_max: str = ""
    # Where the user has pip look, beside the node's own configuration.
    places: Sequence[str] = ()


def releases() -> str:
    """Return all releases in words."""
    return "; ".join(f"{name} for Python {' to '.join(dict.fromkeys(each.pythons))}" for name, each in RELEASES.items())


def input_findings(settings: Settings) -> Iterator[Finding]:
    """Yield what is wrong with the settings."""
    version = settings.version
    if not re.fullmatch(r"\d+\.\d+\.\d+((rc|\.dev|\.post)\d+)?(\+\w+)?", version):
        yield _finding(f"oneflow_version is {version!r}", "an exact release such as 0.9.0")
        return
    number, _, build = version.partition("+")
    release = RELEASES.get(number)
    if version_numbers(version)[:2] < _FIRST:
        yield _finding(
            f"oneflow_version is {version!r}, which this role cannot verify",
            f"0.5 or newer: {releases()}",
            "make its environment on every node yourself and name it in job_venv (docs/oneflow.md, job_oneflow_style: "
            "address_list)",
        )
        return
    if release is not None:
        yield from too_new_findings("oneflow", f"OneFlow {version}", settings.packages, release.below)
        if not settings.wheel_url:
            yield from _source_findings(settings, release, number, build)
    elif not (settings.python_min and settings.python_max):
        action = (
            "set oneflow_python_min and oneflow_python_max to the Pythons that it has wheels for, and add to "
            "oneflow_packages what it needs"
        )
        yield _finding(f"OneFlow {version} is not known here", f"a known release: {releases()}", action)
    yield from wheel_setting_findings("oneflow", settings.wheel_url, settings.wheel_sha256)


def _source_findings(settings: Settings, release: Release, number: str, build: str) -> Iterator[Finding]:
    builds = ", ".join(f"{number}+{name}" for name in release.builds)
    page = f"oneflow_find_links to [{RELEASE_PAGE}] or a mirror"
    wheel = "set oneflow_wheel_url and oneflow_wheel_sha256"
    if build and build not in release.builds:
        expected = f"a known build: {builds}"
        place = "" if settings.places else f" and set {page}"
        yield _finding(f"oneflow_version is {settings.version!r}", expected, f"correct it{place}, or {wheel}")
    elif not (settings.places or (release.in_index and not build)):
        yield _finding(
            f"no package index has OneFlow {settings.version}",
            f"one of its builds ({builds}) and a place that has it",
            f"set oneflow_version to a build and {page}, or {wheel}",
        )


def plan(settings: Settings) -> dict[str, Any]:
    """Return what to install for settings without findings."""
    number, _, build = settings.version.partition("+")
    release = RELEASES.get(number)
    least, most = release.pythons if release else ("", "")
    # Builds of the release page depend on CUDA's libraries, or hold them.
    libraries = release.libraries if release and not build else ()
    return {
        "pins": [f"oneflow=={settings.version}", *libraries],
        "wheels": {"oneflow": f"{settings.wheel_url}#sha256={settings.wheel_sha256}"} if settings.wheel_url else {},
        "python_min": settings.python_min or least,
        "python_max": settings.python_max or most,
        "versions": {"oneflow": "OneFlow %s", "numpy": "numpy %s", "protobuf": "protobuf %s"},
    }
