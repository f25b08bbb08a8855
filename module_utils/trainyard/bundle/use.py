# SPDX-License-Identifier: Apache-2.0
"""Install from a bundle: whether it fits the hosts and the inventory, and what a node gets of it."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..base.findings import Finding
from ..software import apt
from ..software.requirements import normal
from . import bundled_images, locked_files, repositories
from .contents import image_path, wheel_path
from .locked_files import Requests
from .site_lock import LockError
from .systems import System
from .wheels import request

# Forms of an answer: a stamp, a number of seconds or KiB, and an upper bound for the lines.
_STAMP, _NUMBER, _MAX_LINES = re.compile(r"none|[0-9a-f]{64}"), re.compile(r"[0-9]{1,11}"), 8
# A shared file system may have thousands of TiB.
_KIB = re.compile(r"[0-9]{1,18}")
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


def refused_files(
    lock: Mapping[str, Any], requests: Mapping[str, Requests], found: Mapping[str, str | None], bundle: str
) -> list[Finding]:
    """Return findings on files that wanted a login, where nobody has put them into the bundle and the inventory asks.

    `found`: the sums of these files by path, None for one that is not there. The lock knows what they should be.
    """
    asked = {locked_files.key(file) for file in locked_files.requested(requests)}
    named, places = {file["sha256"]: file for file in lock["files"]}, locked_files.paths(lock["files"])
    findings = []
    for sha256, path in places.items():
        if path not in found or sha256 not in asked or found[path] == sha256:
            continue
        there = (
            f"{bundle}/{path} has sha256 {found[path]}" if found[path] else f"no {path}, as its address wants a login"
        )
        action = f"fetch {named[sha256]['url']}, and put it there"
        findings.append(Finding(named[sha256]["what"], there, f"the file with sha256 {sha256}", action))
    return findings


def fit(lock: Mapping[str, Any], requests: Mapping[str, Requests], systems: Mapping[str, System]) -> list[Finding]:
    """Return the findings where a bundle's lock lacks what hosts are to get."""
    findings = lacking(lock, requests, systems, "bundle", _AGAIN)
    findings += bundled_images.lacking(lock, bundled_images.wanted(requests, systems), _AGAIN)
    return findings + _without_files(lock, requests)


def _without_files(lock: Mapping[str, Any], requests: Mapping[str, Requests]) -> list[Finding]:
    """Return the findings on files that roles would download, as the bundle lacks them; some have no sum to know by."""
    there = {key for each in lock["files"] for key in (each["sha256"], locked_files.key(each))}
    absent: dict[tuple[str, str], list[str]] = {}
    for host, parts in requests.items():
        for file in locked_files.requested({host: parts}):
            if (key := locked_files.key(file)) and key not in there:
                absent.setdefault((file["what"], key), []).append(host)
    findings = []
    for (what, key), hosts in absent.items():
        where = hosts[0] if len(hosts) == 1 else ""
        findings.append(Finding("bundle", f"no {what} ({key[:12]})", "all files of this inventory", _AGAIN, where))
    return findings


def _requested(parts: Requests) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the environments of a host, each with its name."""
    for environment in (part.get("environment") or {} for part in parts.values()):
        if environment.get("packages"):
            yield str(environment["path"]).rpartition("/")[2], environment


class _Environments:
    """The lock's part for each environment of hosts, by name; most hosts have the same few environments."""

    def __init__(self, lock: Mapping[str, Any]) -> None:
        self.systems = lock["systems"]
        self.known: list[tuple[System, Mapping[str, Any], Mapping[str, Any] | None]] = []

    def of(self, system: System, parts: Requests) -> dict[str, Mapping[str, Any] | None]:
        """Return the parts for the environments of a host, None where the lock has none for the same request."""
        return {name: self._part(system, environment) for name, environment in _requested(parts)}

    def missing(self, system: System, parts: Requests) -> Iterator[tuple[str, str]]:
        """Yield what is found, and expected, where the lock has no part for an environment of a host."""
        for name, environment in _requested(parts):
            if self._part(system, environment) is None:
                locked = self.systems[str(system)]["environments"].get(name)
                python = system.python(str(environment["interpreter"]))
                if locked and locked["python"] != python:
                    yield f"{name} for Python {locked['python']} on {system}", f"Python {python}, which this host has"
                else:
                    yield f"another {name} for {system}", "the packages and constraints of this inventory"

    def _part(self, system: System, environment: Mapping[str, Any]) -> Mapping[str, Any] | None:
        for of, other, part in self.known:
            if (of, other) == (system, environment):
                return part
        asked = (request(environment), system.python(str(environment["interpreter"])))
        there = self.systems[str(system)]["environments"].values()
        found = next((part for part in there if (part["requested"], part["python"]) == asked), None)
        self.known.append((system, environment, found))
        return found


def lacking(
    lock: Mapping[str, Any], requests: Mapping[str, Requests], systems: Mapping[str, System], check: str, action: str
) -> list[Finding]:
    """Return the findings where a lock lacks packages or environments that hosts are to get."""
    findings, environments = [], _Environments(lock)
    for host, system in ((host, systems[host]) for host in requests if host in systems):
        if str(system) not in lock["systems"]:
            expected = f"one of {', '.join(sorted(lock['systems']))}"
            findings.append(Finding(check, f"nothing for {system}", expected, action, host))
            continue
        there, parts = lock["systems"][str(system)]["packages"], requests[host]
        missing = sorted(packages(parts) - set(there["requested"]))
        if missing := missing + repositories.lacking(repositories.of_host(parts), there.get("further", [])):
            found = f"no {', '.join(missing)} for {system}"
            findings.append(Finding(check, found, "all packages of this inventory", action, host))
        for found, expected in environments.missing(system, parts):
            findings.append(Finding(check, found, expected, action, host))
    return findings


def packages(parts: Requests) -> set[str]:
    """Return the names of the system's packages that the roles of a host request."""
    return {str(name) for part in parts.values() for name in part.get("packages") or ()}


def pins(
    lock: Mapping[str, Any], requests: Mapping[str, Requests], systems: Mapping[str, System]
) -> dict[str, dict[str, list[str]]]:
    """Return by host the pins of all wheels of its environments, with their hashes."""
    environments = _Environments(lock)
    return {
        host: {name: _pins(part) for name, part in environments.of(system, requests[host]).items() if part}
        for host, system in systems.items()
        if host in requests and str(system) in lock["systems"]
    }


def _pins(part: Mapping[str, Any]) -> list[str]:
    """Return the pins of an environment, the requested packages first, by which messages name it."""
    requested = {normal(re.split(r"[\s=<>!~;\[@]", line)[0]) for line in part["requested"]}
    wheels = sorted(part["wheels"], key=lambda wheel: wheel["name"] not in requested)
    return [f"{wheel['name']}=={wheel['version']} --hash=sha256:{wheel['sha256']}" for wheel in wheels]


def versions(lock: Mapping[str, Any], system: System) -> dict[str, str]:
    """Return the versions of a system's packages. Raises LockError for what apt could read as something else.

    Hosts with different drivers have several versions of a package, which their roles name to apt.
    """
    found: dict[str, set[str]] = {}
    for deb in lock["systems"][str(system)]["packages"]["files"]:
        name, version = str(deb["name"]), str(deb["version"])
        if not apt.is_package(name, version):
            raise LockError(f"{name[:60]!r} {version[:60]!r} is no package with its version")
        found.setdefault(name, set()).add(version)
    return {name: next(iter(several)) for name, several in found.items() if len(several) == 1}


def paths(lock: Mapping[str, Any], system: System, sums: Iterable[str]) -> list[str]:
    """Return the files of a bundle that a node of this system gets: its repository, its wheels, images, public key."""
    named = {image_path(image) for image in bundled_images.of_system(lock, system)} | {"key.asc"}
    for part in lock["systems"][str(system)]["environments"].values():
        named |= {wheel_path(wheel) for wheel in part["wheels"]}
    return sorted(path for path in sums if path in named or path.startswith(f"debs/{system}/"))


class There(NamedTuple):
    """The bundle of a host: its stamp or `none`, when it was signed if that is known; and the free KiB for another."""

    stamp: str
    made: int | None
    free_kib: int


def on_hosts(states: Mapping[str, Any], folder: str) -> tuple[dict[str, There], list[Finding]]:
    """Return what hosts answered of their bundle in `folder`, and a finding on each that answered something else.

    `states`: by host a list of lines, first the stamp, then the time where it is known, and last the free KiB.
    """
    found, findings = dict[str, There](), []
    for host, lines in states.items():
        words = [str(line).strip() for line in lines] if isinstance(lines, list) else []
        if 1 < len(words) <= _MAX_LINES and _STAMP.fullmatch(words[0]) and _KIB.fullmatch(words[-1]):
            known = words[2:] and _NUMBER.fullmatch(words[1])
            found[host] = There(words[0], int(words[1]) if known else None, int(words[-1]))
            continue
        action = f"remove {folder} there (bundle_leave.yml -e bundle_remove=true), and run this again"
        expected = "the stamp of the bundle that it has, and the free KiB of its disk"
        findings.append(Finding("bundle", f"the answer {str(lines)[:80]!r}", expected, action, host))
    return found, findings


def older(there: Mapping[str, There], made: int, stamp: str) -> list[Finding]:
    """Return a finding on each host that has a newer bundle than the one with this stamp."""
    action = "take the newer bundle, or set trainyard_bundle_older: true to go back to the older one"
    return [
        Finding("bundle", f"it was signed on {_time(made)}, and this host has one of {_time(has.made)}",
                "a bundle that is as new as the one on the host", action, host)
        for host, has in there.items()
        if has.made is not None and has.made > made and has.stamp != stamp
    ]  # fmt: skip


def _time(seconds: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))


def no_room(host: str, free_kib: int, needed_kib: int, folder: str) -> Finding | None:
    """Return the finding on a node whose disk has no room for the files and their archive."""
    if free_kib >= 2 * needed_kib:
        return None
    found = f"{free_kib >> 10} MiB are free for {folder}"
    return Finding("bundle", found, f"{2 * needed_kib >> 10} MiB", "free space, or move trainyard_records", host)


def environment(asked: Mapping[str, Any], here: Mapping[str, Any]) -> dict[str, Any]:
    """Return the environment that the role python_runtime makes, with the wheels of a lock if this node has one.

    `here`: `environments` (pins by name), and `folder`, that of a bundle on the node, the only source then. Without
    it the sources are those of the role. It is empty without a lock.
    """
    locked = (here.get("environments") or {}).get(str(asked["path"]).rpartition("/")[2])
    if locked is None:
        return dict(asked)
    only: dict[str, Any] = {"packages": locked, "constraints": [], "lock": ""}
    if here["folder"]:
        only |= {"index_url": "", "extra_index_urls": [], "wheels": {}}
        only |= {"find_links": [f"{here['folder']}/wheels"], "no_index": True}
    return {**asked, **only}


def file(key: object, here: Mapping[str, Any]) -> str:
    """Return the path on the controller of the bundle's file with this sum or commit, "" without one."""
    return str((here.get("files") or {}).get(str(key), ""))


def with_files(
    records: Sequence[Mapping[str, Any]], here: Mapping[str, Any], key: str = "local_file"
) -> list[dict[str, Any]]:
    """Return records (`sha256`, `url`, `key`) with the file of the bundle under `key`, unless they name one already."""
    found = []
    for record in records:
        path = "" if record.get(key) else file(record.get("sha256"), here)
        found.append({**record, key: path, "url": ""} if path else dict(record))
    return found
