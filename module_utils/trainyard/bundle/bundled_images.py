# SPDX-License-Identifier: Apache-2.0
"""Images of jobs in a lock and a bundle: from a registry by their digest, or files of the controller.

In a lock, `images` lists each with `image` (as in job_image), `architecture` (Debian's name; "" for a file, which every
host gets), `file` (its name in the bundle), and for a file `bytes` and `sha256`. The digest tells all of a registry's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from ..base.findings import Finding
from ..software.image_forms import ARCHIVE, REGISTRY, form, is_fixed
from .systems import System

FORMS = "docker://registry/name@sha256:..., oci-archive:/path or /path/image.sif, with paths on the controller"
_DIGITS = 12


class Content(NamedTuple):
    """Size and sum of a file."""

    bytes: int
    sha256: str


def input_findings(given: Sequence[Any]) -> list[Finding]:
    """Return the findings on container_runtime_images: one of a registry needs its digest, as a tag may move."""
    return [
        Finding("input of container_runtime", f"container_runtime_images has {image}", FORMS, "correct it")
        for image in map(str, given)
        if not form(image) or (form(image) == "registry" and not is_fixed(image))
    ]


def path_of(image: str) -> str:
    """Return the path of an image that is a file of the controller; "" for one of a registry."""
    return "" if form(image) == "registry" else image.removeprefix(ARCHIVE)


def wanted(requests: Mapping[str, Mapping[str, Any]], systems: Mapping[str, System]) -> list[tuple[str, str]]:
    """Return the images that hosts ask for, each with the architecture it is needed for."""
    found = {
        (image, "" if path_of(image) else systems[host].architecture)
        for host, parts in requests.items()
        for part in parts.values()
        for image in part.get("images") or ()
        if host in systems
    }
    return sorted(found)


def entries(asked: Iterable[tuple[str, str]], contents: Mapping[str, Content]) -> list[dict[str, Any]]:
    """Return the images as a lock has them; `contents`: by path, of those that are files."""
    found = []
    for image, architecture in asked:
        path = path_of(image)
        content = contents[path] if path else Content(0, "")
        digits = (content.sha256 or image.rpartition(":")[2])[:_DIGITS]
        name = PurePosixPath(path).stem if path else image.removeprefix(REGISTRY).partition("@")[0].rpartition("/")[2]
        end = "sif" if form(image) == "sif" else "tar"
        stem = "-".join(filter(None, [re.sub(r"[^\w.-]", "_", name), digits, architecture]))
        found.append({"image": image, "architecture": architecture, "file": f"{stem}.{end}", **content._asdict()})
    return found


def of_lock(lock: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the images of a lock."""
    return list(lock.get("images") or ())


def of_system(lock: Mapping[str, Any], system: System) -> list[dict[str, Any]]:
    """Return the images of a lock that a node of this system gets."""
    return [each for each in of_lock(lock) if each["architecture"] in ("", system.architecture)]


def lacking(lock: Mapping[str, Any], asked: Sequence[tuple[str, str]], action: str) -> list[Finding]:
    """Return a finding on each image that a bundle's lock lacks."""
    there = {(each["image"], each["architecture"]) for each in of_lock(lock)}
    return [
        Finding("bundle", f"no image {image}{f' for {architecture}' if architecture else ''}", "all images", action)
        for image, architecture in asked
        if (image, architecture) not in there
    ]
