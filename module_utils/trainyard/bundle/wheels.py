# SPDX-License-Identifier: Apache-2.0
"""Wheels of a Python environment, resolved by uv for another system: its options, and the pylock.toml that it writes.

pylock.toml is the format of PEP 751. uv puts just wheels for the asked platform into it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from ..software.requirements import normal, without_password
from .systems import System

# Names of platforms before they had the minor version of glibc 2.
_OLD_NAMES = {"manylinux1_": 5, "manylinux2010_": 12, "manylinux2014_": 17}


@dataclass(frozen=True, order=True)
class Wheel:
    """One wheel; `url` is a path where it came from a folder."""

    name: str
    version: str
    file: str
    url: str
    bytes: int
    sha256: str


class PylockError(ValueError):
    """A pylock.toml that names no wheel, or one without a checksum."""


def read_pylock(lock: Mapping[str, Any]) -> list[Wheel]:
    """Return the wheels of a pylock.toml. Raises PylockError."""
    found = []
    for package in lock.get("packages") or ():
        label = f"{package['name']} {package.get('version', '')}".rstrip()
        wheels = [*package.get("wheels", ()), *([package["archive"]] if "archive" in package else ())]
        ranks = [_rank(_file(wheel)) for wheel in wheels]
        wheels = [wheel for wheel, rank in zip(wheels, ranks) if rank == max(ranks)]
        if len(wheels) != 1:
            raise PylockError(f"{label} has {len(wheels)} wheels for this system, expected one")
        wheel = wheels[0]
        where = str(wheel.get("url") or wheel.get("path") or "")
        sha256 = str((wheel.get("hashes") or {}).get("sha256") or "")
        if not where or not sha256:
            raise PylockError(f"{label} has no {'checksum' if where else 'address'}")
        found.append(
            Wheel(
                normal(str(package["name"])),
                str(package.get("version") or ""),
                _file(wheel),
                without_password(where),
                int(wheel.get("size") or 0),
                sha256,
            )
        )
    return sorted(found)


def _file(wheel: Mapping[str, Any]) -> str:
    where = str(wheel.get("url") or wheel.get("path") or "")
    return str(wheel.get("name") or unquote(urlsplit(where).path).rpartition("/")[2])


def _rank(file: str) -> tuple[bool, int, int, int]:
    """Return how closely a wheel is built for a system that can use it: pip takes the highest."""
    interpreter, abi, platform = ([*file.removesuffix(".whl").rsplit("-", 3)[1:], "", "", ""])[:3]
    glibc = [int(minor) for minor in re.findall(r"manylinux_2_(\d+)_", platform)]
    glibc += [minor for name, minor in _OLD_NAMES.items() if name in platform]
    minors = [int(minor) for minor in re.findall(r"cp3(\d+)", interpreter)]
    kind = 2 if abi.startswith("cp") else int(abi == "abi3")
    return platform != "any", kind, max(minors, default=0), max(glibc, default=0)


def uv_arguments(system: System, environment: Mapping[str, Any], index: Sequence[str]) -> list[str]:
    """Return the options of `uv pip compile` for an environment of python_runtime."""
    return [
        "--quiet",
        "--no-header",
        "--no-config",
        "--only-binary=:all:",
        "--generate-hashes",
        "--format=pylock.toml",
        f"--python-version={system.python(str(environment['interpreter']))}",
        f"--python-platform={system.platform}",
        *index,
    ]


def _given(environment: Mapping[str, Any], pip: Mapping[str, str], name: str) -> list[str]:
    """Return what the environment has under a name of pip's options, else what this machine's pip has."""
    own = environment.get(name.replace("-", "_") + ("s" if name == "extra-index-url" else ""))
    values = [own] if isinstance(own, str) and own else list(own or ())
    return [str(value) for value in values] or pip.get(name, "").split()


def index_options(environment: Mapping[str, Any]) -> list[str]:
    """Return uv's options for indexes. It prefers the first one that has a package, unless told to do as pip does."""
    return ["--no-index"] if environment.get("no_index") else ["--index-strategy=unsafe-best-match"]


def index_variables(environment: Mapping[str, Any], pip: Mapping[str, str]) -> dict[str, str]:
    """Return uv's variables for where packages come from, as addresses may hold a password, which argv would show.

    `pip`: what `pip config list` says, by name without its section.
    """
    found = {"UV_FIND_LINKS": ",".join(_given(environment, pip, "find-links"))}
    if not environment.get("no_index"):
        found["UV_DEFAULT_INDEX"] = "".join(_given(environment, pip, "index-url")[:1])
        found["UV_INDEX"] = " ".join(_given(environment, pip, "extra-index-url"))
    return {name: value for name, value in found.items() if value}


def read_pip_configuration(text: str) -> dict[str, str]:
    """Read `pip config list`, by name without its section; variables of the environment come last there, and win."""
    lines = re.findall(r"^[\w:-]+\.([\w-]+)='(.*)'$", text, re.MULTILINE)
    return dict(lines)


def asked(environment: Mapping[str, Any]) -> list[str]:
    """Return the requirements of an environment, without hashes: the lock has its own."""
    addresses = {normal(name): address for name, address in (environment.get("wheels") or {}).items()}
    found = []
    for text in map(str, environment["packages"]):
        line = re.sub(r"\s*--hash=\S+", "", text).strip()
        name = normal(re.split(r"[\s=<>!~;\[@]", line)[0])
        found.append(f"{name} @ {addresses[name]}" if name in addresses else line)
    return found


def constraints(environment: Mapping[str, Any]) -> list[str]:
    """Return the constraints of an environment, and the versions of its role's file with hashes for other packages."""
    given = [str(each) for each in environment.get("constraints") or ()]
    pins = re.findall(
        r"^[A-Za-z0-9][\w.-]*==[^\s;\\]+(?: ?;[^\\\n]+)?", str(environment.get("lock") or ""), re.MULTILINE
    )
    names = {normal(re.split(r"[\s=<>!~;\[@]", line.strip())[0]) for line in [*given, *asked(environment)]}
    return given + [pin.rstrip() for pin in pins if normal(pin.partition("==")[0]) not in names]


def request(environment: Mapping[str, Any]) -> list[str]:
    """Return all that decides which wheels an environment gets: with the same request a lock stays."""
    found = [without_password(line) for line in asked(environment)]
    found += [f"constraint {each}" for each in constraints(environment)]
    for name in ("index_url", "extra_index_urls", "find_links", "no_index"):
        value = environment.get(name)
        found += [f"{name} {without_password(str(each))}" for each in (value if isinstance(value, list) else [value])
                  if each]  # fmt: skip
    return found


def requirements(wheels: Iterable[Wheel]) -> str:
    """Write the wheels as requirements with hashes, for pip of any age."""
    return "".join(f"{each.name}=={each.version} \\\n    --hash=sha256:{each.sha256}\n" for each in wheels)


def pylock_name(label: str) -> str:
    """Return the name of a pylock file; PEP 751 allows no dots between its first and its last one."""
    return f"pylock.{label.replace('.', '-')}.toml"


def pylock(wheels: Iterable[Wheel], python: str) -> str:
    """Write the wheels of a version of Python as pylock.toml; they lie beside it."""
    lines = ['lock-version = "1.0"', 'created-by = "trainyard"', f"requires-python = {_toml(f'=={python}.*')}"]
    for each in wheels:
        lines += ["", "[[packages]]", f"name = {_toml(each.name)}"]
        lines += [f"version = {_toml(each.version)}"] if each.version else []
        size = f"size = {each.bytes}, " if each.bytes else ""
        lines += [f"wheels = [{{path = {_toml(each.file)}, {size}hashes = {{sha256 = {_toml(each.sha256)}}}}}]"]
    return "\n".join(lines) + "\n"


def _toml(text: str) -> str:
    """Write a string of TOML. It escapes as JSON does, and also the character DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
