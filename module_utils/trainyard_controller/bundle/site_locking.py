# SPDX-License-Identifier: Apache-2.0
"""Resolve on the controller which packages and wheels hosts of other systems get, by apt and uv."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import tomllib
from ansible.module_utils.parsing.convert_bool import boolean

from ...trainyard.base.findings import Finding, UnusableError, counted, some_of
from ...trainyard.base.received import Source, of_hosts
from ...trainyard.base.visible import one_line
from ...trainyard.bundle import bundled_images, debs, repositories, site_lock, systems, wheels
from ...trainyard.bundle.locked_files import Requests
from ...trainyard.bundle.site_lock import Wanted
from ...trainyard.bundle.systems import System
from ...trainyard.software import words
from ...trainyard.software.requirements import without_password
from ...trainyard.software.software_answers import SYSTEM
from ...trainyard_node.machine import commands
from ...trainyard_node.software.dataset_files import sha256_of
from ..runs.project import ROOT
from ..runs.run_folder import NotWrittenError, write_whole
from . import deb_locking, software_requests
from .deb_locking import NotResolvedError

# Bounds of one resolution, in seconds, and of what is shown of an error, in characters.
_LIMIT_S, _SHOWN = 900, 600


@dataclass
class Resolved:
    """Packages and wheels by system, and findings on those that could not be resolved."""

    debs: dict[System, list[debs.Deb]]
    wheels: dict[tuple[System, str], list[wheels.Wheel]]
    findings: list[Finding]
    # Packages (what, why) that a system does not have.
    absent: dict[System, list[dict[str, str]]] = field(default_factory=dict)


def resolve(systems: Mapping[System, Wanted], mirror: Mapping[str, str], show: Callable[[str], None]) -> Resolved:
    """Resolve everything for all systems; `mirror`: addresses instead of this machine's own (main, security)."""
    found = Resolved({}, {}, [])
    pip = wheels.read_pip_configuration(commands.run([sys.executable, "-m", "pip", "config", "list"], 60).output)
    for system, wanted in systems.items():
        count = len({*wanted.packages, *(line for each in wanted.further for line in repositories.lines(each))})
        if (count or wanted.optional) and not system.has_packages:
            found.findings.append(_packages(system, wanted))
        elif count or wanted.optional:
            show(f"{system}: apt resolves {counted(count, 'package')}")
            try:
                found.debs[system], found.absent[system] = deb_locking.resolve(system, wanted, mirror)
            except NotResolvedError as error:
                found.findings += error.findings
        for environment, given in wanted.environments.items():
            show(f"{system}: uv resolves {environment}")
            with tempfile.TemporaryDirectory() as name:
                try:
                    found.wheels[system, environment] = _wheels(Path(name), system, given, pip)
                except NotResolvedError as error:
                    found.findings += [replace(each, check=f"{environment} on {system}") for each in error.findings]
    return found


def images_of(asked: Sequence[tuple[str, str]]) -> tuple[list[dict[str, Any]], list[Finding]]:
    """Return the images as a lock has them, and findings on files that cannot be read."""
    contents, findings = dict[str, bundled_images.Content](), list[Finding]()
    for path in filter(None, (bundled_images.path_of(image) for image, _ in asked)):
        try:
            contents[path] = bundled_images.Content(Path(path).stat().st_size, sha256_of(Path(path)))
        except OSError as error:
            action = "correct container_runtime_images, or put the image there"
            findings.append(Finding("image", f"{path}: {error.strerror}", "a file of the controller", action))
    return [] if findings else bundled_images.entries(asked, contents), findings


def read(path: Path) -> dict[str, Any] | None:
    """Return the lock in a file, None where there is no file. Raises UnusableError."""
    try:
        return site_lock.read(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise UnusableError(f"{path} is damaged: {why}. Restore it, or remove it, and run lock.yml again.") from error


def write(path: Path, lock: site_lock.Lock) -> None:
    """Write a lock. Raises UnusableError."""
    try:
        write_whole(path, site_lock.text(lock))
    except NotWrittenError as error:
        raise UnusableError(f"{path} cannot be written: {error}. Choose another file with trainyard_lock.") from error


class Recorded(NamedTuple):
    """Requests of roles by host as a play has recorded them, and `pinned` with what decides their environments."""

    requests: dict[str, Requests]
    pinned: dict[str, dict[str, dict[str, Any]]]
    systems: dict[str, System]
    findings: list[Finding]


def recorded(variables: Mapping[str, Any], hosts: Iterable[str]) -> Recorded:
    """Return what a play has recorded, out of a task's variables; findings name hosts whose system is not supported.

    Environments are decided by the hashes of their role, and by the version of a host's `python3`, if one was read.
    """
    known = software_requests.recorded()
    requests: dict[str, Requests] = {host: known.get(host, {}) for host in hosts}
    answers, unusable = of_hosts(requests, variables["hostvars"], Source("", SYSTEM))
    printed = {host["name"]: host.get("trainyard_python3", {}).get("stdout", "").partition(" ") for host in answers}
    pinned = {
        host: {name: {**part, "environment": _pinned(part, python)} for name, part in requests[host].items()}
        for host, (python, _, _) in printed.items()
    }
    libraries = {
        host: library.replace(" ", "-")
        for host, (_, _, library) in printed.items()
        if not boolean(variables["hostvars"][host].get("trainyard_manage_system", True))
    }
    found, findings = systems.of_hosts({host["name"]: host.get("ansible_facts", {}) for host in answers}, libraries)
    findings += unusable
    return Recorded(requests, pinned, found, findings)


def _pinned(part: Mapping[str, Any], python: str) -> dict[str, Any]:
    environment, role = dict(part.get("environment") or {}), str(part.get("pinned_by") or "").strip()
    if environment and role:
        environment["lock"] = (ROOT / "roles" / role / "files" / f"{role}_lock.txt").read_text(encoding="utf-8")
    if python and environment.get("interpreter") == "python3":
        environment["interpreter"] = f"python{python}"
    return environment


def _not_resolved(check: str, found: str, expected: str, action: str) -> NotResolvedError:
    return NotResolvedError(Finding(check, found, expected, action))


def _packages(system: System, wanted: Wanted) -> Finding:
    names = ", ".join(some_of(sorted({*wanted.packages, *wanted.optional}), 5))
    action = "set ROLE_manage_system: false for these roles, too, or lock hosts of Debian or Ubuntu"
    return Finding(f"packages of {system}", names or "a repository", "no package of the system", action)


def _wheels(folder: Path, system: System, environment: Mapping[str, Any], pip: Mapping[str, str]) -> list[wheels.Wheel]:
    """Return the wheels of an environment."""
    uv = shutil.which("uv", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
    if uv is None:
        raise _not_resolved("uv", "it is not installed", "uv on the controller", "run make")
    packages, limits = wheels.asked(environment), wheels.constraints(environment)
    if wrong := words.faults({**environment, "constraints": [*packages, *limits]}):
        expected = "requirements of one line each, and addresses of http, https or file"
        raise _not_resolved("wheels", "; ".join(wrong), expected, "correct them in the inventory")
    for name, lines in (("requirements", packages), ("constraints", limits)):
        (folder / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines))
    if not system.python(str(environment["interpreter"])):
        unknown, expected = f"{environment['interpreter']} on {system}", "an interpreter with its release in its name"
        raise _not_resolved("Python", unknown, expected, "name one, as in pytorch_interpreter: python3.11")
    options = wheels.uv_arguments(system, environment, wheels.index_options(environment))
    argv = [uv, "pip", "compile", *options, "--constraints=constraints.txt"]
    argv += ["--output-file=pylock.toml", "requirements.txt"]
    certificates = {"SSL_CERT_FILE": pip["cert"]} if pip.get("cert") else {}
    indexes = wheels.index_variables(environment, pip)
    env = {**os.environ, **certificates, **indexes, "UV_PYTHON_DOWNLOADS": "never"}
    done = commands.run(argv, _LIMIT_S, cwd=folder, env=env)
    expected = f"wheels of {', '.join(packages[:3])}{' and more' if packages[3:] else ''}"
    action = "correct the packages, or name an index that has wheels for this system"
    if done.status:
        raise _not_resolved("wheels", one_line(without_password(done.output.strip()), _SHOWN), expected, action)
    try:
        found = wheels.read_pylock(tomllib.loads((folder / "pylock.toml").read_text()))
    except wheels.PylockError as error:
        raise _not_resolved("wheels", str(error), expected, action) from error
    return [_with_size(wheel) for wheel in found]


def _with_size(wheel: wheels.Wheel) -> wheels.Wheel:
    """Add the size of a wheel in a folder of this machine."""
    if wheel.bytes or not wheel.url.startswith(("file:", "/")):
        return wheel
    try:
        return replace(wheel, bytes=Path(unquote(urlsplit(wheel.url).path)).stat().st_size)
    except OSError:
        return wheel
