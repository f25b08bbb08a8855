# SPDX-License-Identifier: Apache-2.0
"""Which packages of NVIDIA's are cuDNN at a version, and what is wrong with a wanted cuDNN. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

# The first release that came as a wheel, by the major release of CUDA that it is for: the package index has none older.
_FIRST_WHEEL = {"11": (8, 5), "12": (8, 8), "13": (9, 12)}


@dataclass(frozen=True)
class Wanted:
    """A wanted cuDNN, as the role's variables give it."""

    provider: str
    version: str = ""
    cuda: str = ""
    url: str = ""
    local_file: str = ""
    sha256: str = ""
    manage_system: bool = True


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def problems(wanted: Wanted) -> Iterator[str]:
    """Yield what is wrong with a wanted cuDNN."""
    if wanted.provider == "none":
        return
    exact = bool(re.fullmatch(r"\d+\.\d+\.\d+\.\d+", wanted.version))
    built = bool(re.fullmatch(r"\d+\.\d+", wanted.cuda))
    if not exact:
        yield f"cudnn_version is {wanted.version!r}, expected an exact release with its build, such as 8.5.0.96."
    if not built:
        yield f"cudnn_cuda is {wanted.cuda!r}, expected the CUDA release that it is built for, such as 11.7, in quotes."
    if wanted.provider == "archive":
        if bool(wanted.url) == bool(wanted.local_file):
            yield "cudnn_provider is archive: expected either cudnn_url or cudnn_local_file."
        if not re.fullmatch(r"[0-9a-f]{64}", wanted.sha256):
            yield (
                f"cudnn_sha256 is {wanted.sha256!r}, expected the archive's sha256, 64 hexadecimal digits: nothing is "
                "unpacked that was not compared with it."
            )
    if wanted.provider == "wheel" and exact and built:
        major = wanted.cuda.split(".")[0]
        first = _FIRST_WHEEL.get(major)
        if first is None or _number(wanted.version)[:2] < first:
            since = f"there are wheels from {first[0]}.{first[1]} on" if first else f"for CUDA {major} there is none"
            yield (
                f"No package index has cuDNN {wanted.version} for CUDA {major} as a wheel, {since}: take "
                "cudnn_provider: archive, or network_repo."
            )
    if wanted.provider == "network_repo" and not wanted.manage_system:
        yield (
            "cudnn_provider is network_repo, whose packages only root may install, but trainyard_manage_system is "
            "false; take wheel or archive."
        )


def plan(wanted: Wanted) -> dict[str, Any]:
    """Return the packages of NVIDIA's repository and the wheel, for a wanted cuDNN without problems.

    Up to 8 a package is named by cuDNN's major release, and its version by the exact CUDA; from 9 on its name says the
    major release of CUDA, and headers are a package of their own.
    """
    if wanted.provider == "none":
        return {"packages": [], "wheel": ""}
    major, cuda = wanted.version.split(".")[0], wanted.cuda.split(".")[0]
    if int(major) < 9:
        names = [f"libcudnn{major}", f"libcudnn{major}-dev"]
        version = f"{wanted.version}-1+cuda{wanted.cuda}"
    else:
        names = [f"libcudnn{major}{part}-cuda-{cuda}" for part in ("", "-headers", "-dev")]
        version = f"{wanted.version}-1"
    return {
        "packages": [{"name": name, "version": version} for name in names],
        "wheel": f"nvidia-cudnn-cu{cuda}=={wanted.version}",
    }
