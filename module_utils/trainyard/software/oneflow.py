# SPDX-License-Identifier: Apache-2.0
"""Which OneFlow releases there are in a package index, and what each of them needs beside it.

From the wheels' metadata and file names; 0.9.0 is tested by trainyard on CPU with Python 3.9, the rest is not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Release:
    """One release. `pythons` are the first and the last that it has wheels for."""

    pythons: tuple[str, str]
    # CUDA's libraries, with which the wheel is linked but which it neither holds nor asks for: without them not even
    # a program for the CPU can import it.
    libraries: tuple[str, ...]
    # What it was built against, and no longer works with. Its metadata asks for less.
    below: Mapping[str, str]


RELEASES: Mapping[str, Release] = {
    "0.9.0": Release(
        pythons=("3.8", "3.10"),
        libraries=("nvidia-cublas-cu11==11.10.3.66", "nvidia-cudnn-cu11==8.5.0.96"),
        below={"numpy": "1.24", "protobuf": "3.21"},
    )
}


@dataclass(frozen=True)
class Wanted:
    """A wanted installation, as the role's variables give it; what stands at its default there is empty here."""

    version: str
    wheel_url: str = ""
    wheel_sha256: str = ""
    packages: Sequence[str] = ()
    python_min: str = ""
    python_max: str = ""


def releases() -> str:
    """Return all releases in words."""
    return "; ".join(f"{name} for Python {each.pythons[0]} to {each.pythons[1]}" for name, each in RELEASES.items())


def problems(wanted: Wanted) -> Iterator[str]:
    """Yield what is wrong with a wanted installation."""
    version = wanted.version
    if not re.fullmatch(r"\d+\.\d+\.\d+((rc|\.dev|\.post)\d+)?(\+\w+)?", version):
        yield f"oneflow_version is {version!r}, expected an exact release such as 0.9.0."
        return
    release = RELEASES.get(version)
    if release is not None:
        yield from _too_new(wanted, release)
    elif not (wanted.python_min and wanted.python_max):
        yield (
            f"OneFlow {version} is not known here: set oneflow_python_min and oneflow_python_max to the Pythons that "
            f"it has wheels for, and name in oneflow_packages what it needs beside it. Known are: {releases()}."
        )
    if wanted.wheel_url and not re.fullmatch(r"[0-9a-f]{64}", wanted.wheel_sha256):
        yield f"oneflow_wheel_sha256 is {wanted.wheel_sha256!r}, expected the 64 hexadecimal digits of the wheel's sum."
    if wanted.wheel_sha256 and not wanted.wheel_url:
        yield "oneflow_wheel_sha256 is set without oneflow_wheel_url: set both or none."


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
    release = RELEASES.get(wanted.version)
    least, most = release.pythons if release else ("", "")
    return {
        "pins": [f"oneflow=={wanted.version}", *(release.libraries if release else ())],
        "wheels": {"oneflow": f"{wanted.wheel_url}#sha256={wanted.wheel_sha256}"} if wanted.wheel_url else {},
        "python_min": wanted.python_min or least,
        "python_max": wanted.python_max or most,
    }


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))
