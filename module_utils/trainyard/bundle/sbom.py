# SPDX-License-Identifier: Apache-2.0
"""The software of a lock as a bill of materials, CycloneDX 1.6 in JSON; the same lock gives the same text."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

from ..software.image_forms import REGISTRY
from . import bundled_images
from .site_lock import parts_of
from .systems import named

_SPACE = uuid.UUID("4f0c6f0e-6f1c-5d0d-9a1b-3f1f5f8f7a10")


def sbom(lock: Mapping[str, Any], lock_text: str, version: str) -> dict[str, Any]:
    """Return the bill of materials of a cluster; `version` is trainyard's own."""
    return _document("platform", "cluster", _components(lock), lock_text, version)


def of_release(pins: Iterable[str], version: str) -> dict[str, Any]:
    """Return the bill of materials of a release of trainyard, of which `pins` are the controller's packages."""
    names = sorted({pin.partition(";")[0].strip() for pin in pins})
    parts = (name.partition("==") for name in names)
    found = [
        _component("library", {"name": name, "version": of, "sha256": ""}, f"pkg:pypi/{_part(name)}@{_part(of)}")
        for name, _, of in parts
    ]
    return _document("application", "trainyard", found, "\n".join(names), version)


def _document(kind: str, name: str, listed: Iterable[dict[str, Any]], identity: str, version: str) -> dict[str, Any]:
    components = {each["bom-ref"]: each for each in listed}
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(_SPACE, identity)}",
        "version": 1,
        "metadata": {
            "component": {"type": kind, "bom-ref": name, "name": name},
            "tools": {"components": [{"type": "application", "name": "trainyard", "version": version}]},
        },
        "components": [components[ref] for ref in sorted(components)],
    }


def text(found: Mapping[str, Any]) -> str:
    """Write it."""
    return json.dumps(found, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _components(lock: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    for _, name, parts in parts_of(lock):
        system = named(name)
        release = f"&distro={quote(system.release, safe='')}" if system else ""
        distribution = system.distribution if system else "debian"
        for deb in parts["packages"]["files"]:
            purl = f"pkg:deb/{distribution}/{_part(deb['name'])}@{_part(deb['version'])}?arch={deb['architecture']}"
            yield _component("library", deb, purl + release)
        for environment in parts["environments"].values():
            for wheel in environment["wheels"]:
                purl = f"pkg:pypi/{_part(wheel['name'])}@{_part(wheel['version'])}"
                # One version may have a wheel for each platform.
                yield _component("library", wheel, f"{purl}?file_name={_part(wheel['file'])}")
    for file in lock["files"]:
        entry = {"name": file["what"], "version": "", "sha256": file["sha256"]}
        yield _component("file", entry, f"pkg:generic/{_part(file['what'])}?download_url={quote(file['url'], safe='')}")
    for image in bundled_images.of_lock(lock):
        yield _component("container", *_image(image))


def _image(image: Mapping[str, Any]) -> tuple[dict[str, str], str]:
    """Return name, version and sum of an image, and its package URL."""
    given = image["image"]
    if bundled_images.path_of(given):
        return {"name": image["file"], "version": "", "sha256": image["sha256"]}, f"pkg:generic/{_part(image['file'])}"
    where, _, digest = given.removeprefix(REGISTRY).partition("@")
    purl = f"pkg:oci/{_part(where.rpartition('/')[2])}@{_part(digest)}?repository_url={quote(where, safe='/')}"
    return {"name": where, "version": digest, "sha256": ""}, f"{purl}&arch={image['architecture']}"


def _component(kind: str, entry: Mapping[str, Any], purl: str) -> dict[str, Any]:
    digest = [{"alg": "SHA-256", "content": entry["sha256"]}] if entry["sha256"] else []
    found = {
        "type": kind,
        "bom-ref": hashlib.sha256(purl.encode()).hexdigest()[:16],
        "name": entry["name"],
        "version": entry["version"],
        "purl": purl,
        "hashes": digest,
    }
    return {name: value for name, value in found.items() if value}


def _part(value: str) -> str:
    return quote(value, safe=".-_~")
