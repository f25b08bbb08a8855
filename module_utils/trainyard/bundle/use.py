# SPDX-License-Identifier: Apache-2.0
"""Install from a bundle: whether it fits the hosts and the inventory, and what a node gets of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..findings.findings import Finding
from . import files, images, repositories
from .contents import image_path, wheel_path
from .files import Requests
from .site_lock import unchanged, wanted, without
from .systems import System

_AGAIN = "make another one: playbooks/lock.yml, then playbooks/bundle.yml, with this inventory"


def changed_files(expected: Mapping[str, str], found: Mapping[str, str | None], bundle: str) -> list[Finding]:
    """Return a finding on each file whose sum is another one than the signed one, and on those that are not there.

    Other files in the folder are never used.
    """
    findings = []
    missing = [path for path in sorted(expected) if found.get(path) is None]
    for path in sorted(expected):
        if path not in missing and found[path] != expected[path]:
            action = "fetch the bundle again: this copy is damaged or changed"
            findings.append(Finding("bundle", f"{bundle}/{path}: sha256 {found[path]}", expected[path], action))
    if missing:
        named = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if missing[3:] else "")
        action = "fetch the bundle again; of one made with bundle_since, first cp -rn OLDER/. NEWER/"
        findings.append(Finding("bundle", f"{bundle} has no {named}", "all files that are signed", action))
    return findings


def fit(lock: Mapping[str, Any], requests: Mapping[str, Requests], systems: Mapping[str, System]) -> list[Finding]:
    """Return the findings where a bundle's lock lacks what hosts are to get."""
    findings = []
    for host in requests:
        if host in systems and str(systems[host]) not in lock["systems"]:
            there = ", ".join(sorted(lock["systems"]))
            findings.append(Finding("bundle", f"nothing for {systems[host]}", f"one of {there}", _AGAIN, host))
    asked = {system: each for system, each in wanted(requests, systems).items() if str(system) in lock["systems"]}
    for system, left in without(asked, unchanged(lock, asked)).items():
        hosts = [host for host in requests if systems.get(host) == system]
        where = hosts[0] if len(hosts) == 1 else ""
        requested = set(lock["systems"][str(system)]["packages"]["requested"])
        if lacking := sorted(left.packages - requested):
            found = f"no {', '.join(lacking)} for {system}"
            findings.append(Finding("bundle", found, "all packages of this inventory", _AGAIN, where))
        for found, host in _without_repositories(lock, requests, systems, system):
            findings.append(Finding("bundle", found, "all packages of this inventory", _AGAIN, host))
        for name, environment in left.environments.items():
            locked = lock["systems"][str(system)]["environments"].get(name)
            version = system.python(str(environment["interpreter"]))
            if locked and locked["python"] != version:
                found = f"{name} for Python {locked['python']} on {system}"
                findings.append(Finding("bundle", found, f"Python {version}, which this host has", _AGAIN, where))
                continue
            found = f"another {name} for {system} than this inventory asks for"
            findings.append(Finding("bundle", found, "the same packages and constraints", _AGAIN, where))
    findings += images.lacking(lock, images.wanted(requests, systems), _AGAIN)
    return findings + _without_files(lock, requests)


def _without_files(lock: Mapping[str, Any], requests: Mapping[str, Requests]) -> list[Finding]:
    """Return the findings on files that roles would download, as the bundle lacks them; some have no sum to know by."""
    there = {key for each in lock["files"] for key in (each["sha256"], files.key(each))}
    lacking: dict[tuple[str, str], list[str]] = {}
    for host, parts in requests.items():
        for file in files.requested({host: parts}):
            if (key := files.key(file)) and key not in there:
                lacking.setdefault((file["what"], key), []).append(host)
    findings = []
    for (what, key), hosts in lacking.items():
        where = hosts[0] if len(hosts) == 1 else ""
        findings.append(Finding("bundle", f"no {what} ({key[:12]})", "all files of this inventory", _AGAIN, where))
    return findings


def _without_repositories(
    lock: Mapping[str, Any], requests: Mapping[str, Requests], systems: Mapping[str, System], system: System
) -> list[tuple[str, str]]:
    """Return what a bundle lacks of the packages with a repository of their own, each with its host."""
    locked = lock["systems"][str(system)]["packages"].get("further", [])
    hosts: dict[str, list[str]] = {}
    for host, parts in requests.items():
        lines = repositories.lacking(repositories.of_host(parts), locked) if systems.get(host) == system else []
        if lines:
            hosts.setdefault(f"no {', '.join(lines)} for {system}", []).append(host)
    return [(found, names[0] if len(names) == 1 else "") for found, names in hosts.items()]


def pins(lock: Mapping[str, Any], system: System) -> dict[str, list[str]]:
    """Return the pins of all wheels of a system with their hashes, by environment."""
    return {
        name: [f"{wheel['name']}=={wheel['version']} --hash=sha256:{wheel['sha256']}" for wheel in part["wheels"]]
        for name, part in lock["systems"][str(system)]["environments"].items()
    }


def paths(lock: Mapping[str, Any], system: System, sums: Iterable[str]) -> list[str]:
    """Return the files of a bundle that a node of this system gets: its repository, its wheels, images, public key."""
    named = {image_path(image) for image in images.of_system(lock, system)} | {"key.asc"}
    for part in lock["systems"][str(system)]["environments"].values():
        named |= {wheel_path(wheel) for wheel in part["wheels"]}
    return sorted(path for path in sums if path in named or path.startswith(f"debs/{system}/"))


def no_room(host: str, free_kib: int, needed_kib: int, folder: str) -> Finding | None:
    """Return the finding on a node whose disk has no room for the files and their archive."""
    if free_kib >= 2 * needed_kib:
        return None
    found = f"{free_kib >> 10} MiB are free for {folder}"
    return Finding("bundle", found, f"{2 * needed_kib >> 10} MiB", "free space, or move trainyard_records", host)


def environment(asked: Mapping[str, Any], here: Mapping[str, Any]) -> dict[str, Any]:
    """Return the environment that the role python_runtime makes, from the bundle on this node if it has it.

    `here`: `folder` and `environments` (pins by name); empty without a bundle.
    """
    of_bundle = (here.get("environments") or {}).get(str(asked["path"]).rpartition("/")[2])
    if of_bundle is None:
        return dict(asked)
    nothing = {"constraints": [], "lock": "", "index_url": "", "extra_index_urls": [], "wheels": {}}
    return {
        **asked, **nothing, "packages": of_bundle, "find_links": [f"{here['folder']}/wheels"], "no_index": True,
    }  # fmt: skip


def file(key: object, here: Mapping[str, Any]) -> str:
    """Return the path on the controller of the bundle's file with this sum or commit, "" without one."""
    return str((here.get("files") or {}).get(str(key), ""))


def with_files(records: Sequence[Mapping[str, Any]], here: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return records (`sha256`, `url`, `local_file`) with the file of the bundle, unless they name a file already."""
    found = []
    for record in records:
        path = "" if record.get("local_file") else file(record.get("sha256"), here)
        found.append({**record, "local_file": path, "url": ""} if path else dict(record))
    return found
