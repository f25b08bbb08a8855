# SPDX-License-Identifier: Apache-2.0
"""Say for which machines there are wheels of a package, and why none fits one: by their file names (PEP 425, 600, 656).

pip decides which wheel it takes, and does not say why it takes none. A machine is its Python, as in (3, 11), what
`uname -m` prints, and the minor version of its glibc 2: None for another C library, such as musl.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import unquote

from .requirements import Pin, normal

_FILE = re.compile(
    r"(?P<name>[^\s/-]{1,100})-(?P<version>[^\s/-]{1,100})(?:-\d[^\s/-]{0,50})?-(?P<python>[\w.]{1,100})-"
    r"(?P<abi>[\w.]{1,100})-(?P<platform>[\w.]{1,200})\.whl"
)
_GLIBC = re.compile(r"manylinux_2_(\d{1,3})_(\w+)")
# Names of platforms before they had the minor version of glibc 2.
_OLD_GLIBC = {"manylinux1": 5, "manylinux2010": 12, "manylinux2014": 17}
_PYTHON = re.compile(r"(?:cp|py)(\d)(\d{0,2})")
# Bounds of what is read of pip's output, and of what a finding names.
_MAX_FILES, _SHOWN = 20_000, 4


@dataclass(frozen=True)
class Machine:
    """A Python and its machine, as pip chooses wheels by them."""

    python: tuple[int, int]
    machine: str
    glibc: int | None

    def __str__(self) -> str:
        """Return it in words."""
        library = "another C library than glibc" if self.glibc is None else f"glibc 2.{self.glibc}"
        return f"Python {self.python[0]}.{self.python[1]} on {self.machine} with {library}"


@dataclass(frozen=True)
class Wheel:
    """The name of one wheel, taken apart; `glibc` is by machine the oldest minor version of glibc 2 that it takes."""

    name: str
    version: str
    pythons: frozenset[str]
    abis: frozenset[str]
    glibc: dict[str, int]
    anywhere: bool

    def fits_python(self, python: tuple[int, int]) -> bool:
        """Return whether it is for a release of CPython."""
        for tag in self.pythons:
            match = _PYTHON.fullmatch(tag)
            if match is None or int(match[1]) != python[0]:
                continue
            minor = int(match[2] or 0)
            # abi3 is the stable ABI of this and all newer releases; cp313t is that of a Python without its lock.
            exact = minor == python[1] and self.abis & {f"cp{python[0]}{minor}", "abi3", "none"}
            if exact or (minor < python[1] and (tag.startswith("py") or "abi3" in self.abis)):
                return True
        return False


def read(text: str) -> list[Wheel]:
    """Return the wheels that a text names, such as what pip prints with -vv."""
    found = {}
    for number, match in enumerate(re.finditer(r"[^\s/'\"()]{1,400}\.whl", text)):
        if number >= _MAX_FILES:
            break
        file = unquote(match[0])
        found[file] = _wheel(file)
    return [wheel for wheel in found.values() if wheel]


def _wheel(file: str) -> Wheel | None:
    match = _FILE.fullmatch(file)
    if match is None:
        return None
    glibc: dict[str, int] = {}
    for platform in match["platform"].split("."):
        exact = _GLIBC.fullmatch(platform)
        kind, _, machine = platform.partition("_")
        least, machine = (int(exact[1]), exact[2]) if exact else (_OLD_GLIBC.get(kind, 0), machine)
        if exact or kind in _OLD_GLIBC or kind == "linux":
            glibc[machine] = min(least, glibc.get(machine, least))
    return Wheel(
        normal(match["name"]),
        match["version"],
        frozenset(match["python"].split(".")),
        frozenset(match["abi"].split(".")),
        glibc,
        match["platform"] == "any",
    )


def why_not(pin: Pin, wheels: Iterable[Wheel], machine: Machine) -> str:
    """Return why no wheel of a pinned package fits a machine, "" where one fits or none of its version is known."""
    every = [wheel for wheel in wheels if wheel.name == pin.name and pin.accepts(wheel.version)]
    name = f"{pin.name} {pin.version}"
    here = [wheel for wheel in every if wheel.anywhere or machine.machine in wheel.glibc]
    fitting = [wheel for wheel in here if wheel.fits_python(machine.python)]
    if not every or any(wheel.anywhere for wheel in fitting):
        return ""
    if not here:
        machines = sorted({each for wheel in every for each in wheel.glibc})
        there = f"for {_some(machines)}" if machines else "for other systems than Linux"
        return f"the wheels of {name} are {there}, and this machine is {machine.machine}"
    if not fitting:
        return f"the wheels of {name} for {machine.machine} are for {_pythons(here)}"
    if machine.glibc is None:
        return f"the wheels of {name} need glibc, and this system has another C library"
    least = min(wheel.glibc[machine.machine] for wheel in fitting)
    if least > machine.glibc:
        return f"the wheels of {name} need glibc 2.{least} or newer, and this system has glibc 2.{machine.glibc}"
    return ""


def _some(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (" and more" if names[_SHOWN:] else "")


def _pythons(wheels: Iterable[Wheel]) -> str:
    """Return the releases of Python that wheels are for."""
    minors = {
        (int(match[1]), int(match[2]))
        for wheel in wheels
        for tag in wheel.pythons
        if (match := _PYTHON.fullmatch(tag)) and match[2]
    }
    if not minors:
        return "another Python"
    named = [f"{major}.{minor}" for major, minor in sorted(minors)]
    return "Python " + (named[0] if len(named) == 1 else f"{', '.join(named[:-1])} and {named[-1]}")
