# SPDX-License-Identifier: Apache-2.0
"""Plan an image that has a framework's virtual environment at the same path and of the same files as nodes have it.

The image is made in two steps. A throwaway container of the base, which has network and the host's settings of pip,
brings the wheels (`fetch`). Then the image is built from these wheels without network (`install`), so that neither
addresses nor passwords can get into a layer, and the same wheels give the same image on every host.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..base.findings import Finding
from . import lock, requirements, words
from .pip_calls import WHEELS, pip_calls
from .requirements import Pin, python_in_range, without_password

FRAMEWORKS: Mapping[str, str] = {"pytorch": "PyTorch", "mindspore": "MindSpore", "oneflow": "OneFlow"}
# The oldest Podman whose `build` mounts folders of the context as they are used here.
PODMAN = "4.0"
# Folders in the container that brings the wheels, and in the build; neither gets into the image.
FETCHING, BUILDING = "/run/trainyard-fetch", "/run/trainyard-build"
# The label by which an image is known to have been built from the same input.
RECIPE = "trainyard.recipe"
# Arguments of pip that matter when its wheels are there.
_OF_INSTALL = ("--no-deps", "--ignore-requires-python", "--pre")

_ARCHIVES = ("oci-archive:", "docker-archive:")
_PINNED = re.compile(r"docker://(?P<name>[a-z0-9][a-zA-Z0-9._/:-]*)@sha256:[0-9a-f]{64}")
_LOCAL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]*")
_PIN_IT = "name the image with its digest, which `skopeo inspect --format '{{.Name}}@{{.Digest}}' docker://...` prints"


@dataclass(frozen=True)
class Base:
    """The image to build on, as the step `read` of framework_image has found it."""

    reference: str
    id: str
    digest: str
    user: str
    # Seconds since 1970.
    created: int
    python: Mapping[str, Any]
    # Libraries and programs that the packages need and that the base has not.
    lacking: Sequence[str] = ()

    @property
    def version(self) -> str:
        """Return the version of its Python."""
        return ".".join(str(part) for part in self.python["version"])

    @property
    def minor(self) -> tuple[int, int]:
        """Return the version as far as it decides about packages."""
        major, minor, *_ = self.python["version"]
        return major, minor


@dataclass(frozen=True)
class Call:
    """One call of pip: the file with its requirements, their lines, and its options."""

    file: str
    lines: Sequence[str]
    options: Sequence[str]


@dataclass(frozen=True)
class Image:
    """An image to build: `fetch` and `install` are the calls of pip that bring and install the wheels."""

    name: str
    base: Base
    path: str
    fetch: Sequence[Call]
    install: Sequence[Call]
    constraints: str
    versions: Sequence[str]
    labels: Mapping[str, str] = field(default_factory=dict)


def settings_findings(framework: str, base: str, file: str, is_local: bool) -> Iterator[Finding]:
    """Yield what is wrong with the playbook's variables; `is_local` tells whether it builds on the controller."""
    if framework not in FRAMEWORKS:
        yield _input(f"image_framework is {framework!r}", f"one of {', '.join(FRAMEWORKS)}", "name one of them")
    if not base:
        found, expected = "no image_base", "an image with the Python that the framework is to have"
        yield _input(found, expected, f"{_PIN_IT}, or an archive (oci-archive:/path) or an image of the host")
    elif base.startswith("docker://"):
        if not _PINNED.fullmatch(base):
            expected = "docker://NAME@sha256:..., as a tag may be another image tomorrow"
            yield _input(f"image_base is {base!r}", expected, _PIN_IT)
    elif not base.startswith(tuple(f"{kind}/" for kind in _ARCHIVES)) and (
        not _LOCAL.fullmatch(base) or "://" in base or base.startswith(_ARCHIVES)
    ):
        expected = "docker://NAME@sha256:..., oci-archive:/path, docker-archive:/path, or the name of an image there"
        yield _input(f"image_base is {base!r}", expected, "correct it")
    if file and not file.startswith("/") and not is_local:
        expected = "an absolute path on the host that builds the image"
        yield _input(f"image_file is {file!r}", expected, "begin it with a slash")
    if file.endswith("/"):
        yield _input(f"image_file is {file!r}", "the name of a file", "name a file, such as pytorch.tar")


def _input(found: str, expected: str, action: str) -> Finding:
    return Finding("input of image.yml", found, expected, action)


def archive_of(reference: str) -> str:
    """Return the path of a base that is an archive, "" for others; a name within the archive is left out."""
    for kind in _ARCHIVES:
        if reference.startswith(kind):
            return reference.removeprefix(kind).partition(":")[0]
    return ""


def local_name(reference: str) -> str:
    """Return by which name the host's store has an image once it is pulled."""
    return reference.removeprefix("docker://")


def environment_findings(framework: str, environment: Mapping[str, Any], base: Base) -> Iterator[Finding]:
    """Yield why the environment (arguments of the module python_environment) cannot be made in this base."""
    name, where = FRAMEWORKS[framework], f"the base {base.reference}"
    pins, wrong = requirements.parse_all(environment["packages"], base.minor)
    yield from words.environment_findings(environment, pins, wrong)
    for line in lock.unread(environment["lock"]):
        expected = "name==version with --hash=sha256:... on lines of their own"
        yield Finding(
            "hashes", f"the file with hashes has {line!r}", expected, "write it with uv pip compile --generate-hashes"
        )
    least, most = environment["python_min"], environment["python_max"]
    if not python_in_range(base.minor, least, most):
        found = f"Python {base.version} ({environment['interpreter']}) in {where}"
        expected = f"Python {least or 'any'} to {most or 'any'}, for which {name} has wheels"
        action = f"choose another base, another {framework}_interpreter in it, or another release of {name}"
        yield Finding("Python of the base", found, expected, action)
    if not base.python["can_make_environments"]:
        major, minor = base.minor
        found = f"no modules venv and ensurepip in {where}"
        action = f"choose another base, or install python{major}.{minor}-venv in it (Debian, Ubuntu)"
        yield Finding("Python of the base", found, "a Python that can make environments", action)
    for each in base.lacking:
        found, action = f"no {each} in {where}", "choose another base, or install it there"
        yield Finding("libraries of the base", found, f"{each}, which {name} needs", action)
    if environment["no_index"] and not environment["find_links"]:
        found = "no_index without find_links leaves pip no source"
        yield Finding("packages", found, "a source of packages", f"name a folder of wheels in {framework}_find_links")
    for argument in environment["pip_args"]:
        if without_password(argument) != argument:
            found = f"{framework}_pip_args has {without_password(argument)}, with a password"
            action = f"name it in {framework}_index_url, {framework}_extra_index_urls or {framework}_find_links"
            yield Finding("packages", found, "no password in an argument, which all users of the host see", action)


def plan(framework: str, environment: Mapping[str, Any], base: Base) -> Image:
    """Return what to build from an environment without findings."""
    pins, _ = requirements.parse_all(environment["packages"], base.minor)
    wheels = _wheels(environment)
    hashed = lock.by_hashes(environment["lock"], pins, wheels, environment["constraints"], base.minor)
    constraints = "".join(f"{line}\n" for line in [*environment["constraints"], *hashed.constraints])
    args = environment["pip_args"]
    fetch = _calls(pins, hashed, wheels, FETCHING, [*WHEELS, *args])
    # The sums of what has been brought are checked already. A wheel that pip has made of an archive has another one.
    passed = [*WHEELS, *(each for each in args if each in _OF_INSTALL)]
    install = _calls([replace(pin, hashes="") for pin in pins], hashed, {}, BUILDING, passed)
    sums = [f"{name} {address.rpartition('#sha256=')[2]}" for name, address in sorted(wheels.items())]
    lines = [line for call in _calls(pins, hashed, {}, "", []) for line in call.lines]
    sha256 = digest([*sorted(constraints.splitlines()), *sorted(lines), *sums])
    versions = [f"{pin.name}=={pin.version}" for pin in pins]
    version = pins[0].version
    tag = re.sub(r"[^A-Za-z0-9_.-]", "-", version)
    # Addresses and paths of this host would make the same image differ elsewhere.
    match = _PINNED.fullmatch(base.reference)
    labels = {
        "org.opencontainers.image.title": f"{FRAMEWORKS[framework]} {version}",
        "org.opencontainers.image.version": version,
        **({"org.opencontainers.image.base.name": match["name"]} if match else {}),
        "org.opencontainers.image.base.digest": base.digest,
        "trainyard.framework": framework,
        "trainyard.versions": " ".join(versions),
        "trainyard.lock": sha256,
        "trainyard.python": base.version,
        "trainyard.environment": environment["path"],
    }
    name = f"localhost/trainyard/{framework}:{tag}-{sha256[:12]}"
    return Image(name, base, environment["path"], fetch, install, constraints, versions, labels)


def _wheels(environment: Mapping[str, Any]) -> dict[str, str]:
    return {requirements.normal(name): address for name, address in environment["wheels"].items()}


def _calls(
    pins: Sequence[Pin], hashed: lock.ByHashes, wheels: Mapping[str, str], folder: str, args: Sequence[str]
) -> list[Call]:
    return [
        Call("by-hashes.txt" if "--require-hashes" in options else "others.txt", lines, [*args, *options])
        for lines, options in pip_calls(pins, hashed, wheels, f"{folder}/constraints.txt")
    ]


def digest(texts: Sequence[str]) -> str:
    """Return one sha256 of several texts."""
    return hashlib.sha256("".join(f"{len(text)}:{text}" for text in texts).encode()).hexdigest()


def summary(built: Mapping[str, Any], versions: Sequence[str], check: bool) -> str:
    """Return the result of the step `build` of framework_image for people, with the line for a job file."""
    done = "; ".join(built["reasons"]) or "nothing to do: the image is there"
    lines = [f"{done}." + (" This would change." if check and built["reasons"] else "")]
    lines += [f"image   {built['name']} ({', '.join(versions)})"]
    if built["id"] and not (check and built["reasons"]):
        lines += [f"id      {built['id']}", f"digest  {built['digest']}", f"size    {built['bytes'] / 1e6:,.0f} MB"]
    if built["file"]:
        lines += ["in a job file:", f"job_image: oci-archive:{built['file']}"]
    return "\n".join(lines)
