# SPDX-License-Identifier: Apache-2.0
"""The content of a bundle: the files of a lock, where each lies, their sums, and the texts of its repositories for apt.

NAME-4f2a.bundle/
    lock                            the lock itself
    debs/SYSTEM/                    a flat repository of each system: *.deb, Packages, Release, InRelease
    debs/controller-SYSTEM/         the same for the lab on a controller
    wheels/                         wheels of all systems
    wheels/SYSTEM-ENVIRONMENT.txt   requirements with hashes, as wheels/controller-SYSTEM-python3.13.txt
    wheels/pylock.SYSTEM-ENVIRONMENT.toml   the same in the format of PEP 751, with - for dots in the two names
    files/                          archives, commits of git repositories as tar files
    images/                         images of jobs: archives of OCI, and SIF files
    sbom.cdx.json                   the software, for tools that read CycloneDX
    missing.json                    what somebody has to fetch by hand
    SHA256SUMS, SHA256SUMS.asc      the sum of each file, and their signature
    key.asc                         the public key of the signatures
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from ..software.installed import size_text
from . import bundled_images, locked_files
from .locked_files import file_name
from .site_lock import parts_of
from .wheels import Wheel, pylock, pylock_name, requirements

SUMS = "SHA256SUMS"
_SUM = re.compile(r"(?P<sha256>[0-9a-f]{64})  (?P<path>[^\x00-\x1f\x7f]+)")


@dataclass(frozen=True, order=True)
class Item:
    """One file of a bundle: its path there, where it comes from, its size (0: not known), its sum, and what it is.

    An image of a registry has no sum, as its address has a digest, and the architecture for which it is taken.
    """

    path: str
    url: str
    bytes: int
    sha256: str
    what: str
    architecture: str = ""

    @property
    def may_follow(self) -> bool:
        """Return whether somebody may put the file into a bundle later: the lock has its sum, and no index lists it."""
        return self.path.startswith("files/") and bool(self.sha256)


def name(inventory: str, lock_text: str) -> str:
    """Return the name of a bundle: that of the inventory, and the first digits of the lock's sum."""
    return f"{inventory}-{hashlib.sha256(lock_text.encode()).hexdigest()[:4]}.bundle"


def items(lock: Mapping[str, Any]) -> list[Item]:
    """Return the files that a lock names, each path once."""
    found: dict[str, Item] = {}
    for label, _, parts in parts_of(lock):
        for deb in parts["packages"]["files"]:
            path = f"debs/{label}/{file_name(deb['file'])}"
            found[path] = Item(path, deb["url"], deb["bytes"], deb["sha256"], f"{deb['name']} {deb['version']}")
        for environment in parts["environments"].values():
            for wheel in environment["wheels"]:
                path = wheel_path(wheel)
                found[path] = Item(
                    path, wheel["url"], wheel["bytes"], wheel["sha256"], f"{wheel['name']} {wheel['version']}"
                )
    places = locked_files.paths(lock["files"])
    for file in lock["files"]:
        if file["sha256"]:
            path = places[file["sha256"]]
            found[path] = Item(path, file["url"], 0, file["sha256"], file["what"])
    for image in bundled_images.of_lock(lock):
        path, given = image_path(image), image["image"]
        source = bundled_images.path_of(given) or given
        found[path] = Item(path, source, image["bytes"], image["sha256"], given, image["architecture"])
    return [found[path] for path in sorted(found)]


def image_path(image: Mapping[str, Any]) -> str:
    """Return where an image of the lock lies."""
    return f"images/{file_name(image['file'])}"


def wheel_path(wheel: Mapping[str, Any]) -> str:
    """Return where a wheel of the lock lies."""
    return f"wheels/{file_name(wheel['file'])}"


def missing(lock: Mapping[str, Any], refused: Iterable[Item] = (), bundle: str = "") -> list[dict[str, str]]:
    """Return what a bundle does not hold: what no lock covers, files without a sum, and those that want a login."""
    without_sum = [
        {"what": file["what"], "why": f"{file['url']} has no sum"} for file in lock["files"] if not file["sha256"]
    ]
    with_login = [
        {
            "what": each.what,
            "why": f"{each.url} wants a login",
            "sha256": each.sha256,
            "where": str(PurePath(bundle, each.path)),
        }
        for each in refused
    ]
    return [*lock["missing"], *without_sum, *with_login]


def texts(lock: Mapping[str, Any]) -> dict[str, str]:
    """Return the files of requirements of a bundle, for pip of any age and in the format of PEP 751, by path."""
    found = {}
    for of, _, parts in parts_of(lock):
        for environment, part in parts["environments"].items():
            label = f"{of}-{environment}"
            wheels = [Wheel(**{**wheel, "file": file_name(wheel["file"])}) for wheel in part["wheels"]]
            found[f"wheels/{label}.txt"] = requirements(wheels)
            found[f"wheels/{pylock_name(label)}"] = pylock(wheels, part["python"])
    return found


def listing(found: Iterable[Item], left_out: Iterable[Mapping[str, str]]) -> list[str]:
    """Return a line for each file, the total, and what is missing."""
    found, left_out = list(found), list(left_out)
    lines = [
        f"{each.what} ({size_text(each.bytes) if each.bytes else 'size unknown'}) from {each.url}" for each in found
    ]
    total = size_text(sum(each.bytes for each in found))
    state = ", incomplete" if left_out else ""
    return [*lines, f"{len(found)} files, {total}{state}", *map(locked_files.absent, left_out)]


def sums_text(sums: Mapping[str, str]) -> str:
    """Write the sums of files, by path, in the form of sha256sum."""
    return "".join(f"{sums[path]}  {path}\n" for path in sorted(sums))


def read_sums(text: str) -> dict[str, str]:
    """Read the sums of files, by path. Raises ValueError for another line, or a path that leaves the bundle."""
    found = {}
    for line in text.splitlines():
        match = _SUM.fullmatch(line)
        if match is None or match["path"].startswith("/") or ".." in match["path"].split("/"):
            raise ValueError(f"{line[:80]!r} is no sum of a file")
        found[match["path"]] = match["sha256"]
    return found


def new_since(found: Iterable[Item], older: Mapping[str, str]) -> list[Item]:
    """Return the files that an older bundle does not hold, by its sums."""
    return [each for each in found if each.path not in older or (each.sha256 and older[each.path] != each.sha256)]


def packages_text(controls: Iterable[tuple[str, str, int, str]]) -> str:
    """Write the index of a flat repository, from the control data of each package, its file, bytes and sum."""
    return "\n".join(
        f"{control.strip()}\nFilename: ./{file}\nSize: {size}\nSHA256: {sha256}\n"
        for control, file, size, sha256 in controls
    )


def release_text(system: str, architecture: str, packages: bytes, date: str) -> str:
    """Write the Release file of a flat repository; `date` in the form of RFC 5322."""
    sha256 = hashlib.sha256(packages).hexdigest()
    return (
        f"Origin: trainyard\nLabel: trainyard\nSuite: {system}\nArchitectures: {architecture} all\nDate: {date}\n"
        f"SHA256:\n {sha256} {len(packages)} Packages\n"
    )
