# SPDX-License-Identifier: Apache-2.0
"""Plan how one version of NCCL or cuDNN is installed: packages, wheel or archive; or what is wrong with the request."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..base.findings import Finding
from ..software.requirements import is_sha256, source
from .library import LIBRARIES

Request = Mapping[str, Any]
_PACKAGED = ("network_repo", "distro")


def input_findings(request: Request) -> Iterator[Finding]:
    """Yield what is wrong with a request."""
    library = LIBRARIES[request["name"]]
    name, provider = library.name, request["provider"]
    version, cuda = str(request["version"]), str(request["cuda"])
    if provider == "none":
        return
    exact = _is_release(version, library.version_numbers)
    built = _is_release(cuda, 2)
    if not exact and not (provider == "distro" and not version):
        yield _finding(name, f"{name}_version is {version!r}", f"an exact release such as {library.example_version}")
    if not built and not (provider == "distro" and not cuda):
        expected = f"the CUDA release that {library.title} is built for, such as {library.example_cuda}, in quotes"
        yield _finding(name, f"{name}_cuda is {cuda!r}", expected)
    if provider == "archive" and bool(request["url"]) == bool(request["local_file"]):
        action = "set one of them"
        yield _finding(name, f"{name}_provider is archive", f"either {name}_url or {name}_local_file", action)
    if provider == "archive" and not is_sha256(request["sha256"]):
        yield _finding(name, f"{name}_sha256 is {request['sha256']!r}", "the archive's sha256, 64 hexadecimal digits")
    if provider == "wheel" and exact and built:
        yield from _without_wheel(request)
    if provider in _PACKAGED and not request["manage_system"]:
        found = f"{name}_provider is {provider}, and trainyard_manage_system is false"
        with_wheel = exact and built and not list(_without_wheel(request))
        action = _other_provider(request, *["wheel"] * with_wheel, "archive")
        yield _finding(name, found, "root's permission to install packages", action)


def plan(request: Request) -> dict[str, Any]:
    """Return how a request is installed.

    `findings`; `packages` (name and version of each) and `wheel` (a pip requirement), empty where there are findings;
    `venv`, the wheel's environment; for playbooks/validate.yml `can_install` (the record that site_software takes) and
    `offers` (the packages that the provider must have).
    """
    library, findings = LIBRARIES[request["name"]], [each.as_dict() for each in input_findings(request)]
    root, provider, major = request["root"], request["provider"], str(request["cuda"]).split(".")[0]
    usable = not findings and provider != "none"
    packages = _packages(request) if usable and provider in _PACKAGED else []
    wheel = f"nvidia-{library.name}-cu{major}=={request['version']}" if usable and provider == "wheel" else ""
    # One environment for each CUDA: two distributions in one environment would share a folder.
    venv = f"{root}/venvs/{library.name}-cu{major}"
    header = f"{root}/{library.name}-archive/{request['sha256'][:12]}/include/{library.name}.h"
    variables = f"{library.name}_url or {library.name}_local_file"
    archive = source(f"{library.title} {request['version']}", header, variables, request)
    environment = {"path": venv, "packages": [wheel], "min_free_mb": library.wheel_mb, **request["pip"]}
    return {
        "title": library.title,
        "findings": findings,
        "packages": packages,
        "wheel": wheel,
        "wheel_mb": library.wheel_mb,
        "venv": venv,
        "example": library.example_archive,
        "can_install": {
            "findings": findings,
            "sources": [archive] if provider == "archive" else [],
            "prefix": library.name,
            "manage_system": request["manage_system"],
            "environment": environment if wheel else {},
        },
        "offers": [{"names": [each["name"]], "version": each["version"], "begins": ""} for each in packages[:1]],
    }


def _is_release(text: str, numbers: int) -> bool:
    return bool(re.fullmatch(r"\d+" + r"\.\d+" * (numbers - 1), text))


def _other_provider(request: Request, *providers: str) -> str:
    """Return the advice to take one of these providers, with what an archive needs."""
    name = request["name"]
    missing = [f"{name}_{field}" for field in ("version", "cuda") if not request[field]]
    texts = {"archive": f"{name}_provider: archive with {', '.join([*missing, f'{name}_url'])} and {name}_sha256"}
    return "set " + ", or ".join(texts.get(each, f"{name}_provider: {each}") for each in providers)


def _without_wheel(request: Request) -> Iterator[Finding]:
    """Yield a finding where no package index has this release as a wheel."""
    library, version, major = LIBRARIES[request["name"]], str(request["version"]), str(request["cuda"]).split(".")[0]
    first = library.first_wheels.get(major)
    if not library.first_wheels or (first and tuple(map(int, version.split(".")[:2])) >= first):
        return
    found = f"no package index has {library.title} {version} for CUDA {major} as a wheel"
    expected = f"{first[0]}.{first[1]} or newer" if first else f"another CUDA than {major}, which has no wheels"
    providers = ("archive", "network_repo") if request["manage_system"] else ("archive",)
    yield _finding(library.name, found, expected, _other_provider(request, *providers))


def _finding(name: str, found: str, expected: str, action: str = "correct it") -> Finding:
    return Finding(f"input of {name}", found, expected, action)


def _packages(request: Request) -> list[dict[str, str]]:
    """Return the packages with their exact versions, the library itself first.

    A distribution's versions have a suffix of their own. NVIDIA's name the exact CUDA; only cuDNN 9 and newer have
    CUDA's major release in the name, and the headers in a package of their own.
    """
    version, cuda = str(request["version"]), str(request["cuda"])
    major = version.split(".")[0]
    names: Sequence[str] = request["packages"] or [f"libcudnn{major}", f"libcudnn{major}-dev"]
    if request["provider"] == "network_repo":
        version = f"{version}-1+cuda{cuda}"
    if not request["packages"] and int(major) >= 9:
        names = [f"libcudnn{major}{part}-cuda-{cuda.split('.')[0]}" for part in ("", "-headers", "-dev")]
        version = f"{request['version']}-1"
    return [{"name": name, "version": version} for name in names]
