# SPDX-License-Identifier: Apache-2.0
"""Which calls of `pip install` make an environment, with their requirements and options."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from .lock import ByHashes
from .requirements import Pin

# A source archive runs code of its own when it is installed.
WHEELS = ("--only-binary=:all:",)
_BY_HASHES = ("--no-deps", "--require-hashes", *WHEELS)


def pip_calls(
    pins: Sequence[Pin], hashed: ByHashes, wheels: Mapping[str, str], constraints: str, renew: Sequence[str] = ()
) -> Iterator[tuple[list[str], list[str]]]:
    """Yield requirements and options of each call: first what has hashes in a file, then the rest.

    `wheels` are addresses by normal name, `constraints` is the path of a constraints file, and the packages of `renew`
    are replaced also where the version is the requested one.
    """
    if hashed.lines:
        yield [line for lines in hashed.lines.values() for line in lines], list(_BY_HASHES)
    lines = [line for name in renew for line in hashed.lines.get(name, ())]
    if lines:
        yield lines, ["--force-reinstall", *_BY_HASHES]
    rest = [f"--constraint={constraints}"]
    lines = [_requirement(pin, wheels) for pin in pins if pin.name in renew and pin.name not in hashed.lines]
    if lines:
        yield lines, ["--force-reinstall", "--no-deps", *rest]
    if hashed.rest:
        yield [pin.requirement if pin.name in hashed.lines else _requirement(pin, wheels) for pin in pins], rest


def _requirement(pin: Pin, wheels: Mapping[str, str]) -> str:
    address = wheels.get(pin.name)
    return f"{pin.name} @ {address}" if address else f"{pin.requirement}{pin.hashes}"
