# SPDX-License-Identifier: Apache-2.0
"""Which OneFlow releases there are, for which Python and CUDA, where, and what each of them needs beside it.

From metadata and file names of the wheels in the package index, and from README, setup.py and release workflow of each
tag of OneFlow's repository. 0.8.0 and 0.9.0 were run by trainyard on CPU with Python 3.9, no other was.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

# np.bool and its like in its Python part, and code that an old protoc made.
_TOO_NEW = {"numpy": "1.24", "protobuf": "3.21"}


@dataclass(frozen=True)
class Release:
    """One release. `pythons` are the first and the last of its wheels with which `oneflow_packages` are there, too."""

    pythons: tuple[str, str]
    # Whether the package index has it; the others are on a page of their own, RELEASE_PAGE.
    in_index: bool = False
    # Its builds by the end of their version (0.7.0+cu112), with the least driver that it names for each.
    builds: Mapping[str, str] = field(default_factory=dict)
    # CUDA's libraries, with which the wheel is linked but which it neither holds nor asks for: without them not even
    # a program for the CPU can import it.
    libraries: tuple[str, ...] = ()
    # What it was built against, and no longer works with. Its metadata asks for less.
    below: Mapping[str, str] = field(default_factory=lambda: _TOO_NEW)


RELEASE_PAGE = "https://release.oneflow.info"
_TO_CUDA_11_2 = {
    "cu100": "410.48",
    "cu101": "418.39",
    "cu102": "440.33",
    "cu110": "450.36.06",
    "cu111": "450.80.02",
    "cu112": "450.80.02",
    "cpu": "",
}
_CUDA_10_2_AND_11_2 = {"cu102": "440.33", "cu112": "450.80.02", "cpu": ""}

RELEASES: Mapping[str, Release] = {
    "0.5.0": Release(pythons=("3.8", "3.8"), builds=_TO_CUDA_11_2),
    "0.6.0": Release(pythons=("3.8", "3.9"), builds=_TO_CUDA_11_2),
    "0.7.0": Release(pythons=("3.8", "3.10"), builds=_CUDA_10_2_AND_11_2),
    # The index has the one for CUDA 10.2, which holds CUDA's libraries.
    "0.8.0": Release(pythons=("3.8", "3.10"), in_index=True, builds=_CUDA_10_2_AND_11_2),
    "0.9.0": Release(
        pythons=("3.8", "3.10"),
        in_index=True,
        builds={"cu102": "440.33", "cu112": "450.80.02", "cu117": "450.80.02", "cu118": "450.80.02", "cpu": ""},
        libraries=("nvidia-cublas-cu11==11.10.3.66", "nvidia-cudnn-cu11==8.5.0.96"),
    ),
    "1.0.0": Release(pythons=("3.8", "3.11"), builds={"cu118": "450.80.02", "cpu": ""}),
}
# From here on OneFlow is what the role's proof and the launch module speak to.
_FIRST = (0, 5)


@dataclass(frozen=True)
class Wanted:
    """A wanted installation, as the role's variables give it; what stands at its default there is empty here."""

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


def problems(wanted: Wanted) -> Iterator[str]:
    """Yield what is wrong with a wanted installation."""
    version = wanted.version
    if not re.fullmatch(r"\d+\.\d+\.\d+((rc|\.dev|\.post)\d+)?(\+\w+)?", version):
        yield f"oneflow_version is {version!r}, expected an exact release such as 0.9.0."
        return
    number, _, build = version.partition("+")
    release = RELEASES.get(number)
    if _number(version)[:2] < _FIRST:
        yield (
            f"OneFlow {version} is older than 0.5, with which this role's proof cannot speak. Make its environment on "
            "every node yourself and name it in job_venv; docs/job-file.md says how jobs run it (job_oneflow_style: "
            f"address_list). Known are: {releases()}."
        )
        return
    if release is not None:
        yield from _too_new(wanted, release)
        if not wanted.wheel_url:
            yield from _nowhere(wanted, release, number, build)
    elif not (wanted.python_min and wanted.python_max):
        yield (
            f"OneFlow {version} is not known here: set oneflow_python_min and oneflow_python_max to the Pythons that "
            f"it has wheels for, and name in oneflow_packages what it needs beside it. Known are: {releases()}."
        )
    if wanted.wheel_url and not re.fullmatch(r"[0-9a-f]{64}", wanted.wheel_sha256):
        yield f"oneflow_wheel_sha256 is {wanted.wheel_sha256!r}, expected the 64 hexadecimal digits of the wheel's sum."
    if wanted.wheel_sha256 and not wanted.wheel_url:
        yield "oneflow_wheel_sha256 is set without oneflow_wheel_url: set both or none."


def _nowhere(wanted: Wanted, release: Release, number: str, build: str) -> Iterator[str]:
    builds = ", ".join(f"{number}+{name}" for name in release.builds)
    if build and build not in release.builds:
        yield f"oneflow_version is {wanted.version!r}, but its known builds are {builds}; others by oneflow_wheel_url."
    elif not (wanted.places or (release.in_index and not build)):
        yield (
            f"No package index has OneFlow {wanted.version}: set oneflow_find_links: [{RELEASE_PAGE}] or a mirror, "
            f"with one of its builds as oneflow_version ({builds}), or oneflow_wheel_url and oneflow_wheel_sha256."
        )


def _too_new(wanted: Wanted, release: Release) -> Iterator[str]:
    for package in wanted.packages:
        match = re.match(r"(?P<name>[A-Za-z0-9._-]+?)\s*==\s*(?P<version>\d[\d.]*)", package)
        bound = release.below.get(match["name"].lower()) if match else None
        if match and bound and _number(match["version"]) >= _number(bound):
            yield (
                f"oneflow_packages has {package!r}, but OneFlow {wanted.version} needs {match['name'].lower()} below "
                f"{bound}."
            )


def plan(wanted: Wanted) -> dict[str, Any]:
    """Return what to install, for a wanted installation without problems."""
    number, _, build = wanted.version.partition("+")
    release = RELEASES.get(number)
    least, most = release.pythons if release else ("", "")
    # The builds of the release page ask for them themselves, or hold them.
    libraries = release.libraries if release and not build else ()
    return {
        "pins": [f"oneflow=={wanted.version}", *libraries],
        "wheels": {"oneflow": f"{wanted.wheel_url}#sha256={wanted.wheel_sha256}"} if wanted.wheel_url else {},
        "python_min": wanted.python_min or least,
        "python_max": wanted.python_max or most,
    }


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))
