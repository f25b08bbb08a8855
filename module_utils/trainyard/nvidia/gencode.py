# SPDX-License-Identifier: Apache-2.0
"""The -gencode flags of nvcc, and the CUDA releases that support an architecture.

An architecture is a compute capability without its dot, 90 for 9.0. Code for one runs on every GPU of the same major
number and an equal or higher minor one, so that a generation needs the least of each of its major numbers only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

# NVIDIA's table of compute capabilities (developer.nvidia.com/cuda-gpus); Blackwell is 10.x in data centres and 12.x
# in workstations.
ARCHITECTURES = {
    "kepler": (35,), "maxwell": (50,), "pascal": (60,), "volta": (70,), "turing": (75,), "ampere": (80,), "ada": (89,),
    "hopper": (90,), "blackwell": (100, 120),
}  # fmt: skip
# The first CUDA whose nvcc compiles for an architecture, from the release notes of each CUDA.
_FIRST = {
    60: (8, 0), 61: (8, 0), 70: (9, 0), 75: (10, 0), 80: (11, 0), 86: (11, 1), 89: (11, 8), 90: (11, 8),
    100: (12, 8), 103: (12, 9), 120: (12, 8),
}  # fmt: skip
KNOWN = {*_FIRST, *(number for numbers in ARCHITECTURES.values() for number in numbers)}
# From this CUDA on nothing below the architecture is compiled for.
_OLDEST = (((13, 0), 75), ((12, 0), 50), ((11, 0), 35))


def flags(generations: Iterable[str]) -> str:
    """Return the -gencode flags for GPUs of these generations. Raises KeyError for one that is not in the table."""
    return flags_for({number for generation in generations for number in ARCHITECTURES[generation]})


def flags_for(numbers: Iterable[int]) -> str:
    """Return the -gencode flags for architectures."""
    return " ".join(f"-gencode=arch=compute_{number},code=sm_{number}" for number in sorted(numbers))


def architectures(text: str) -> list[int]:
    """Return the architectures that -gencode flags name, in order."""
    return sorted({int(number) for number in re.findall(r"(?:compute|sm)_(\d{2,3})", text)})


def refusal(number: int, cuda: str) -> str:
    """Return why a CUDA such as 13.0.88 does not compile for an architecture; "" if it does or is unknown."""
    parts = cuda.split(".")
    release = (int(parts[0]), int(parts[1]))
    least = next((least for since, least in _OLDEST if release >= since), 0)
    if number < least:
        return f"CUDA {parts[0]} compiles for sm_{least} and newer"
    first = _FIRST.get(number)
    if first and release < first:
        return f"sm_{number} needs CUDA {first[0]}.{first[1]} or newer"
    return ""
