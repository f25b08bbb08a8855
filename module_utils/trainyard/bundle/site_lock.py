# SPDX-License-Identifier: Apache-2.0
"""The lock of an inventory: which packages, wheels and other files its hosts get, each with its sum.

A lock is a dictionary: `version`; `systems`, by name `packages` (requested, files) and `environments` (by name: python,
requested, wheels); `controller`, in the same form; `files` (what, url, sha256); `missing` (what, why; sha256 and where
for a file of the controller), which the lock does not cover. `packages` may have `further` (for each kind of host the
lines of its repositories), `optional` (what the system may lack) and `missing`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ..base.findings import counted, host_list
from ..base.shapes import Each, Shape, Whole, file_name, misfit
from ..base.state_format import DamagedError, loads
from ..base.visible import one_line
from ..software.installed import size_text
from ..software.requirements import is_sha256
from . import bundled_images, locked_files, repositories
from .debs import Deb
from .locked_files import Requests
from .systems import System
from .wheels import Wheel, request

VERSION = 1
Lock = Mapping[str, Any]


_NO_CONTROLLER = {"what": "packages of .venv", "why": "lock_controllers names no system"}
# By system the packages (what, why) that it does not have.
Absent = Mapping[System, Sequence[Mapping[str, str]]]


class LockError(ValueError):
    """A text that is no lock, or one of another version."""


def _system(value: Any) -> None:
    """the name of a system such as debian-12-x86_64"""
    if not isinstance(value, str) or not re.fullmatch(r"[a-z]{1,32}-[\d.]{1,16}-[a-z0-9_]{1,32}", value, re.ASCII):
        raise ValueError(value)


def _word(value: Any) -> None:
    """text without blanks and control characters"""
    # It stands in requirements and in the index of a repository.
    if not isinstance(value, str) or not value.isprintable() or re.search(r"\s", value):
        raise ValueError(value)


def _sum(value: Any) -> None:
    """a sha256, or nothing"""
    if not isinstance(value, str) or (value and not is_sha256(value)):
        raise ValueError(value)


_LARGEST = Whole(1 << 53)
_DEB = {**dict.fromkeys(("name", "version", "architecture", "file", "url"), _word), "bytes": _LARGEST, "sha256": _sum}
_WHEEL = {**dict.fromkeys(("name", "version", "file"), _word), "url": str, "bytes": _LARGEST, "sha256": _sum}
_ABSENT = {**dict.fromkeys(("what", "why", "?where"), str), "?sha256": _sum}
_PACKAGES = {
    **{name: [str] for name in ("requested", "?optional")},
    "files": [_DEB],
    "?further": [[str]],
    "?missing": [_ABSENT],
}
_ENVIRONMENT = {"python": _word, "requested": [str], "wheels": [_WHEEL]}
_PARTS = {"packages": _PACKAGES, "environments": Each(_ENVIRONMENT, file_name)}
_IMAGE = {**dict.fromkeys(("image", "architecture", "file"), str), "bytes": _LARGEST, "sha256": _sum}
SHAPE: Shape = {
    "systems": Each(_PARTS, _system),
    "?controller": Each(_PARTS, _system),
    "files": [{**dict.fromkeys(("what", "url"), str), "sha256": _sum}],
    "?images": [_IMAGE],
    "missing": [_ABSENT],
}


@dataclass
class Wanted:
    """The software for the hosts of one system: names of packages, and environments by name.

    `further`: for each kind of host its records of repositories; `optional`: packages that the system may lack.
    """

    packages: set[str] = field(default_factory=set)
    environments: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    further: list[list[repositories.Record]] = field(default_factory=list)
    optional: set[str] = field(default_factory=set)

    def deb_request(self) -> dict[str, Any]:
        """Return all that decides which packages are locked, as the lock has it."""
        further = [repositories.lines(records) for records in self.further]
        found = {"further": sorted(further), "optional": sorted(self.optional)}
        return {"requested": sorted(self.packages), **{name: value for name, value in found.items() if value}}


def wanted(requests: Mapping[str, Requests], systems: Mapping[str, System]) -> dict[System, Wanted]:
    """Return what the hosts are to get, by system; hosts of one system with unequal environments each count."""
    found: dict[System, Wanted] = {}
    for host, parts in requests.items():
        if host not in systems:
            continue
        of_system = found.setdefault(systems[host], Wanted())
        repositories.add(of_system.further, repositories.of_host(parts))
        for part in parts.values():
            of_system.packages.update(part.get("packages") or ())
            of_system.optional.update(part.get("optional_packages") or ())
            environment = part.get("environment") or {}
            if environment.get("packages"):
                name = str(environment["path"]).rpartition("/")[2]
                of_system.environments.setdefault(_free(name, environment, of_system.environments), environment)
    return found


def _free(name: str, environment: Mapping[str, Any], there: Mapping[str, Any]) -> str:
    """Return the name of an environment, with a number where another one of this system has it."""
    number, free = 1, name
    while there.get(free, environment) != environment:
        number += 1
        free = f"{name}-{number}"
    return free


def uncovered(requests: Mapping[str, Requests]) -> list[dict[str, str]]:
    """Return what no lock covers: what parts name by `what` and `why`, with the hosts, and files of the controller."""
    found: dict[tuple[str, str], list[str]] = {}
    for host, parts in requests.items():
        for part in parts.values():
            for each in part.get("missing") or ():
                found.setdefault((str(each["what"]), str(each["why"])), []).append(host)
    named = [{"what": f"{what} of {host_list(hosts)}", "why": why} for (what, why), hosts in sorted(found.items())]
    return named + locked_files.brought(requests)


def unchanged(old: Lock | None, systems: Mapping[System, Wanted]) -> dict[str, Any]:
    """Return the parts of a lock, as under `systems`, whose requests are the same as now: they stay as they are."""
    kept: dict[str, Any] = {}
    for system, asked in systems.items():
        there = (old or {"systems": {}})["systems"].get(str(system)) or {}
        before = kept.setdefault(str(system), {"environments": {}})
        packages = there.get("packages") or {}
        if {name: value for name, value in packages.items() if name not in ("files", "missing")} == asked.deb_request():
            before["packages"] = packages
        for name, environment in asked.environments.items():
            part = (there.get("environments") or {}).get(name) or {}
            if part.get("requested") == request(environment) and part.get("python") == _python(system, environment):
                before["environments"][name] = part
    return kept


def without(systems: Mapping[System, Wanted], kept: Mapping[str, Any]) -> dict[System, Wanted]:
    """Return what remains to be resolved beside the parts that are kept."""
    left = {}
    for system, asked in systems.items():
        there = kept[str(system)]
        environments = {name: each for name, each in asked.environments.items() if name not in there["environments"]}
        left[system] = Wanted() if "packages" in there else replace(asked)
        left[system].environments = environments
    return left


def lock(
    systems: Mapping[System, Wanted],
    kept: Mapping[str, Any],
    debs: Mapping[System, Sequence[Deb]],
    wheels: Mapping[tuple[System, str], Sequence[Wheel]],
    requests: Mapping[str, Requests],
    controller: Mapping[str, Any] | None = None,
    absent: Absent | None = None,
) -> dict[str, Any]:
    """Return the lock of what is kept and what was resolved; `controller`: the `resolved` of controllers."""
    found = resolved(systems, kept, debs, wheels, absent)
    lacking = [each for parts in found.values() for each in parts["packages"].get("missing", ())]
    return {
        "version": VERSION,
        "systems": found,
        "controller": dict(controller or {}),
        "files": [locked_files.entry(each) for each in locked_files.requested(requests)],
        "missing": uncovered(requests) + lacking + ([_NO_CONTROLLER] if controller == {} else []),
    }


def resolved(
    systems: Mapping[System, Wanted],
    kept: Mapping[str, Any],
    debs: Mapping[System, Sequence[Deb]],
    wheels: Mapping[tuple[System, str], Sequence[Wheel]],
    absent: Absent | None = None,
) -> dict[str, Any]:
    """Return the parts of a lock, by system, of what is kept and what was resolved."""
    found: dict[str, Any] = {}
    for system, asked in systems.items():
        there = kept[str(system)]
        environments = {
            name: there["environments"].get(name)
            or {
                "python": _python(system, environment),
                "requested": request(environment),
                "wheels": [asdict(wheel) for wheel in sorted(wheels[system, name])],
            }
            for name, environment in asked.environments.items()
        }
        lacking = list((absent or {}).get(system, ()))
        packages = there.get("packages") or {
            **asked.deb_request(),
            "files": [asdict(deb) for deb in sorted(debs.get(system, ()))],
            **({"missing": lacking} if lacking else {}),
        }
        found[str(system)] = {"packages": packages, "environments": environments}
    return found


def parts_of(found: Lock) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield a label, the system and its parts, first of hosts, then of controllers: `controller-debian-12-x86_64`."""
    for system, parts in found["systems"].items():
        yield system, system, parts
    for system, parts in (found.get("controller") or {}).items():
        yield f"controller-{system}", system, parts


def _python(system: System, environment: Mapping[str, Any]) -> str:
    return system.python(str(environment["interpreter"]))


def text(found: Lock) -> str:
    """Write a lock, always in the same way."""
    return json.dumps(found, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def read(content: bytes | str) -> dict[str, Any]:
    """Read a lock. Raises LockError."""
    try:
        found = loads(content)
    except DamagedError as error:
        raise LockError(str(error)) from None
    if not isinstance(found, dict) or not isinstance(found.get("systems"), dict):
        raise LockError("it has no systems")
    version = found.get("version")
    if type(version) is not int or version != VERSION:
        raise LockError(f"it has version {str(version)[:20]}, expected {VERSION}")
    if wrong := misfit(found, SHAPE):
        raise LockError(one_line(wrong))
    return found


def entries(found: Lock) -> dict[tuple[str, str, str], str]:
    """Return the versions of a lock, by system, environment ("" for the system's packages) and name."""
    versions: dict[tuple[str, str, str], str] = {}
    for system, _, parts in parts_of(found):
        for deb in parts["packages"]["files"]:
            # Hosts with different drivers have several versions of a package.
            key = (system, "", deb["name"])
            versions[key] = f"{versions[key]}, {deb['version']}" if key in versions else deb["version"]
        for name, environment in parts["environments"].items():
            for wheel in environment["wheels"]:
                versions[system, name, wheel["name"]] = wheel["version"]
    for file in found["files"]:
        # Hosts may get one thing as several archives, such as those of two architectures.
        others = versions.get(("", "", file["what"]), "")
        versions["", "", file["what"]] = f"{others} {file['sha256'][:12]}".lstrip()
    for image in bundled_images.of_lock(found):
        versions["", "", image["image"]] = image["file"]
    return versions


def changes(old: Lock | None, new: Lock) -> list[str]:
    """Return a line for each version that differs: `debian-12-x86_64 pytorch: torch 2.12.0 -> 2.13.0`."""
    before, after = entries(old) if old else {}, entries(new)
    lines = []
    for key in sorted({*before, *after}):
        if before.get(key) != after.get(key):
            where = " ".join(filter(None, key[:2])) or "files"
            lines.append(f"{where}: {key[2]} {before.get(key, '(new)')} -> {after.get(key, '(gone)')}")
    return lines


def summary(found: Lock) -> list[str]:
    """Return what a lock holds, a line for each system and environment, with sizes."""
    lines = []
    for label, system, parts in parts_of(found):
        debs = parts["packages"]["files"]
        if debs or label == system:
            lines.append(f"{label}: {counted(len(debs), 'package')} of the system, {_size(debs)}")
        for name, environment in parts["environments"].items():
            wheels = environment["wheels"]
            text_of = f"{counted(len(wheels), 'wheel')} for Python {environment['python']}, {_size(wheels)}"
            lines.append(f"{label} {name}: {text_of}")
    lines += [f"file: {file['what']}" for file in found["files"]]
    lines += [f"image: {image['image']} as images/{image['file']}" for image in bundled_images.of_lock(found)]
    return lines + [locked_files.absent(each) for each in found["missing"]]


def _size(listed: Iterable[Mapping[str, Any]]) -> str:
    return size_text(sum(int(each["bytes"]) for each in listed))
