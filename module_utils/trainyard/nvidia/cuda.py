# SPDX-License-Identifier: Apache-2.0
"""CUDA toolkits on the nodes: versions from their own files, and host compilers.

A state is what library/cuda_toolkit returns of a node. A toolkit is known by its release, `12.4` of 12.4.1:
packages of two updates of one release cannot be side by side.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

State = Mapping[str, Any]

# Newest host gcc by newest CUDA release that has this limit, as spack-packages' build_systems/cuda.py lists them after
# NVIDIA's installation guides ("host compiler support policy"); 13.0's own crt/host_config.h says the same. gcc 11.2
# passes the check of 11.4 and 11.5, and then its <functional> does not compile.
NEWEST_GCC = (
    ((10, 2), (8,)), ((11, 0), (9,)), ((11, 4, 0), (10,)), ((11, 5), (11, 1)), ((11, 8), (11,)), ((12, 3), (12,)),
    ((12, 6), (13,)), ((12, 9), (14,)), ((13, 2), (15,)),
)  # fmt: skip
# Last number of nvcc's own version by release of the toolkit, from the labels of NVIDIA's conda channel: what tells
# 12.4.0 from 12.4.1 where no version.json is, as in wheels and Debian's packages.
NVCC_BUILDS = {
    "11.0.3": 221, "11.1.1": 105, "11.3.1": 122, "11.4.0": 48, "11.4.1": 100, "11.4.2": 120, "11.4.3": 152,
    "11.4.4": 152, "11.5.0": 50, "11.5.1": 119, "11.5.2": 119, "11.6.0": 55, "11.6.1": 112, "11.6.2": 124,
    "11.7.0": 64, "11.7.1": 99, "11.8.0": 89, "12.0.0": 76, "12.0.1": 140, "12.1.0": 66, "12.1.1": 105,
    "12.2.0": 91, "12.2.1": 128, "12.2.2": 140, "12.3.0": 52, "12.3.1": 103, "12.3.2": 107, "12.4.0": 99,
    "12.4.1": 131, "12.5.0": 40, "12.5.1": 82, "12.6.0": 20, "12.6.1": 68, "12.6.2": 77, "12.6.3": 85,
    "12.8.0": 61, "12.8.1": 93, "12.9.0": 41, "12.9.1": 86, "13.0.0": 48, "13.0.1": 88, "13.0.2": 88,
    "13.1.0": 80, "13.1.1": 115,
}  # fmt: skip
_NVCC = re.compile(r"release (?P<release>\d+\.\d+), V(?P<version>\d+\.\d+\.\d+)")
_HOST_CONFIG = re.compile(r"^[ \t]*#[ \t]*if[ \t]+__GNUC__[ \t]*>[ \t]*(?P<newest>\d+)", re.MULTILINE)
_GCC = re.compile(r"(?:\d+:)?(?P<version>\d+(?:\.\d+)*)")
_COMPILER = re.compile(r"(?P<path>/.*/)?(?P<name>[A-Za-z0-9_+]+)(?P<suffix>-[0-9.]+)?")


def numbers(version: str) -> tuple[int, ...]:
    """Return `12.4.1` as numbers. Raises ValueError for anything else."""
    return tuple(int(part) for part in version.split("."))


def release(version: str) -> str:
    """Return `12.4` of 12.4 and of 12.4.1."""
    return ".".join(version.split(".")[:2])


def nvcc_version(output: str) -> str:
    """Return `13.0.88` from what `nvcc --version` prints; empty for another output."""
    match = _NVCC.search(output)
    return match["version"] if match else ""


def toolkit_version(text: str | None) -> str:
    """Return the toolkit's version from its version.json, which the vendor's packages and runfile have."""
    try:
        found = json.loads(text or "{}")["cuda"]["version"]
    except (KeyError, TypeError, ValueError, RecursionError):
        return ""
    return found if isinstance(found, str) else ""


def newest_gcc_of(text: str | None) -> str:
    """Return the newest gcc that a toolkit's own crt/host_config.h accepts; empty where it does not say."""
    match = _HOST_CONFIG.search(text or "")
    return match["newest"] if match else ""


def newest_gcc(version: str) -> str:
    """Return the newest gcc for a CUDA version by the table; empty for a release that is newer than the table."""
    # A release without its update is meant with all of them.
    version_numbers = (*numbers(version), 99)
    for until, newest in NEWEST_GCC:
        if version_numbers[: len(until)] <= until:
            return ".".join(map(str, newest))
    return ""


def gcc_version(text: str) -> str:
    """Return `12.2.0` from what -dumpfullversion prints, and from the version `4:12.2.0-3` of a package."""
    match = _GCC.match(text.strip())
    return match["version"] if match else ""


def gcc_fits(version: str, newest: str) -> bool:
    """Return whether a gcc is none too new; `newest` names a whole series, as 11 does every 11.x."""
    limit = numbers(newest)
    return numbers(version)[: len(limit)] <= limit


def compiler_package(compiler: str) -> str:
    """Return Debian's package with a host compiler, `g++-11` for /usr/bin/g++-11; empty for any other."""
    match = _COMPILER.fullmatch(compiler or "g++")
    if match is None or match["name"] not in ("g++", "gcc") or match["path"] not in (None, "/usr/bin/"):
        return ""
    return f"g++{match['suffix'] or ''}"
