# SPDX-License-Identifier: Apache-2.0
"""Pinned Python requirements: read them, and compare them with what is installed; pip would need seconds and its index.

A pin is `name==version`, with extras and a `python_version` marker where needed, and pip's `--hash=sha256:...`; the
grammar is a part of PEP 508, version equality that of PEP 440: a pin without a local part (`2.13.0`) accepts every
build (`2.13.0+cpu`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from operator import eq, ge, gt, le, lt, ne
from typing import Any
from urllib.parse import unquote

from ..base.findings import Finding

_PIN = re.compile(
    r"(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)[ \t]*(?:\[[A-Za-z0-9._, \t-]*\])?"
    r"[ \t]*==[ \t]*(?P<version>v?[0-9][0-9A-Za-z.!+_-]*)"
    r"(?:[ \t]*;[ \t]*python_version[ \t]*(?P<operator><=|>=|==|!=|<|>)[ \t]*['\"](?P<python>\d+\.\d+)['\"])?"
    r"(?P<hashes>(?:[ \t]+--hash=sha256:[0-9a-f]{64})*)[ \t]*"
)
_WHEEL = re.compile(r"(?:https?|file)://\S+/(?P<name>[^/\s-]+)-(?P<version>[^/\s-]+)-[^/\s]+\.whl#sha256=[0-9a-f]{64}")
_RELEASE = re.compile(r"(?:(\d+)!)?(\d+(?:\.\d+)*)(.*)")


_OPERATORS = {"<": lt, "<=": le, ">": gt, ">=": ge, "==": eq, "!=": ne}


class PinError(ValueError):
    """A requirement is not a pin."""


@dataclass(frozen=True)
class Pin:
    """One exact requirement: `text` as it was given; `name` in its normal form; `hashes` are pip's options."""

    text: str
    name: str
    version: str
    hashes: str = ""

    @property
    def requirement(self) -> str:
        """Return the requirement without hashes, and without the marker that has been found to hold."""
        return self.text.partition(";")[0].partition("--hash=")[0].strip()

    def accepts(self, installed: str) -> bool:
        """Return whether an installed version is the requested one."""
        public, _, local = installed.partition("+")
        own, _, own_local = self.version.partition("+")
        return _same(public) == _same(own) and (not own_local or _local(own_local) == _local(local))


def is_sha256(text: str) -> bool:
    """Return whether a text is a sha256 in hexadecimal digits."""
    return re.fullmatch(r"[0-9a-f]{64}", text) is not None


def source(what: str, unless: str, variables: str, entry: Mapping[str, Any]) -> dict[str, str]:
    """Return where a file comes from, as site_software (step request) takes it; a file on the controller goes first.

    `unless` is a path that exists when it is installed, `variables` are those that name the file.
    """
    names = ("url", "local_file", "sha256")
    texts = {name: str(entry.get(name) or "") for name in names}
    address = {"url": ""} if texts["local_file"] else {}
    return {"what": what, "unless": unless, "variables": variables, **texts, **address}


def setting_finding(role: str, settings: Mapping[str, Any], name: str, expected: str) -> Finding:
    """Return a finding about one variable of a role, by its name without the role's."""
    return Finding(f"input of {role}", f"{role}_{name} is {settings[name]!r}", expected, "correct it")


def normal(name: str) -> str:
    """Return the normal form of a distribution's name: `Typing_Extensions` is `typing-extensions`."""
    return re.sub(r"[-_.]+", "-", name).lower()


def parse(text: str, python: tuple[int, int]) -> Pin | None:
    """Return the pin, or None where its marker does not hold for this Python."""
    match = _PIN.fullmatch(text.strip())
    if match is None:
        raise PinError(f"{text.strip()!r} is not pinned: expected name==version, as in numpy==2.4.6")
    if match["operator"] and not _OPERATORS[match["operator"]](python, _python(match["python"])):
        return None
    return Pin(text.strip(), normal(match["name"]), match["version"], match["hashes"])


def parse_all(texts: Iterable[str], python: tuple[int, int]) -> tuple[list[Pin], list[str]]:
    """Return the pins that hold for this Python, and in words everything that is wrong with the list."""
    pins: dict[str, Pin] = {}
    findings = []
    for text in texts:
        try:
            pin = parse(text, python)
        except PinError as error:
            findings.append(str(error))
            continue
        if pin is None:
            continue
        other = pins.setdefault(pin.name, pin)
        if _same(other.version) != _same(pin.version):
            findings.append(f"{other.text!r} and {pin.text!r} contradict each other: keep one")
        elif pin.hashes and not other.hashes:
            pins[pin.name] = replace(other, hashes=pin.hashes)
    return list(pins.values()), findings + _unlike_torch(pins)


def _unlike_torch(pins: Mapping[str, Pin]) -> list[str]:
    """Return in words which packages with operators of their own are of another release or build than torch."""
    found, torch = [], pins.get("torch")
    for name in ("torchvision", "torchaudio"):
        pin = pins.get(name)
        if torch is None or pin is None:
            continue
        builds = [each.version.partition("+")[2] for each in (torch, pin)]
        if all(builds) and _local(builds[0]) != _local(builds[1]):
            found.append(f"{pin.text!r} is of another build than {torch.text!r}: give both the same +{builds[0]}")
        ours, theirs = (re.match(r"2\.(\d{1,3})\.", torch.version), re.match(r"0\.(\d{1,3})\.", pin.version))
        # torchvision 0.(M + 15) belongs to torch 2.M.
        if name == "torchvision" and ours and theirs and int(ours[1]) + 15 != int(theirs[1]):
            found.append(f"{pin.text!r} does not belong to {torch.text!r}: take torchvision 0.{int(ours[1]) + 15}")
    return found


def wheel_findings(wheels: Mapping[str, str], pins: Iterable[Pin]) -> list[str]:
    """Return in words what is wrong with the addresses of wheels, by normal name, from which some pins are taken."""
    findings = []
    by_name = {pin.name: pin for pin in pins}
    for name, address in wheels.items():
        match = _WHEEL.fullmatch(address)
        pin = by_name.get(name)
        if match is None:
            findings.append(
                f"the wheel of {name} is {without_password(address)!r}, expected "
                "https://.../NAME-VERSION-...whl#sha256=<64 hexadecimal digits>, or file:///..."
            )
        elif pin is None:
            findings.append(f"there is a wheel of {name}, but {name} is not among the packages")
        elif normal(match["name"]) != name or not pin.accepts(unquote(match["version"])):
            findings.append(
                f"the wheel of {name} is {match['name']}-{match['version']}, requested is {name} {pin.version}: give "
                "the wheel of that version"
            )
    return findings


def input_finding(role: str, found: str, expected: str, action: str = "") -> Finding:
    """Return a finding about the variables of a role that installs a framework."""
    return Finding(f"input of {role}", found, expected, action or f"correct it (roles/{role}/README.md)")


def wheel_setting_findings(role: str, url: str, sha256: str) -> Iterator[Finding]:
    """Yield what is wrong with ROLE_wheel_url and ROLE_wheel_sha256."""
    if url and not is_sha256(sha256):
        expected = "the 64 hexadecimal digits of the wheel's sum"
        yield input_finding(role, f"{role}_wheel_sha256 is {sha256!r}", expected, "correct it")
    if sha256 and not url:
        found = f"{role}_wheel_sha256 is set without {role}_wheel_url"
        yield input_finding(role, found, "both or none", "set both or none")


def too_new_findings(role: str, framework: str, packages: Iterable[str], below: Mapping[str, str]) -> Iterator[Finding]:
    """Yield the pins of ROLE_packages that a framework does not work with; `below` has the first such version."""
    for package in packages:
        match = re.match(r"(?P<name>[A-Za-z0-9._-]+?)\s*==\s*(?P<version>\d[\d.]*)", package)
        name = match["name"].lower() if match else ""
        if match and name in below and version_numbers(match["version"]) >= version_numbers(below[name]):
            yield input_finding(role, f"{role}_packages has {package!r}", f"{name} below {below[name]} for {framework}")


def version_numbers(version: str) -> tuple[int, ...]:
    """Return all numbers of a version, for comparisons."""
    return tuple(int(part) for part in re.findall(r"\d+", version))


def without_password(address: str) -> str:
    """Return an address as it may be shown."""
    return re.sub(r"(?<=//)[^/@]*:[^/@]*@", "***@", address)


def missing(pins: Iterable[Pin], installed: Mapping[str, str]) -> list[str]:
    """Return in words what of the pins is not installed; the keys of `installed` are normal names."""
    changes = []
    for pin in pins:
        found = installed.get(pin.name)
        if found is None:
            changes.append(f"{pin.name} {pin.version} is not installed")
        elif not pin.accepts(found):
            changes.append(f"{pin.name} is {found}, requested is {pin.version}")
    return changes


def python_in_range(python: tuple[int, int], least: str, most: str) -> bool:
    """Return whether a Python lies in the range that is given as `3.10` and `3.14`, each of them optional."""
    return (not least or python >= _python(least)) and (not most or python <= _python(most))


def meets(marker: str, python: tuple[int, int]) -> bool:
    """Return whether a Python lies within the bounds of a marker (`python_full_version >= '3.11' and ...`)."""
    bounds = re.findall(r"python(?:_full)?_version ?(<=|>=|==|!=|<|>) ?['\"](\d+\.\d+)", marker)
    return all(_OPERATORS[operator](python, _python(bound)) for operator, bound in bounds)


# The own Python of the supported systems.
_PYTHON_OF = {
    "Debian 11": (3, 9),
    "Ubuntu 22.04": (3, 10),
    "Debian 12": (3, 11),
    "Ubuntu 24.04": (3, 12),
    "Debian 13": (3, 13),
}


def systems_with(least: str, most: str) -> list[str]:
    """Return the supported systems whose own Python lies in a range, as in python_in_range."""
    return [system for system, python in _PYTHON_OF.items() if python_in_range(python, least, most)]


def _python(text: str) -> tuple[int, int]:
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


def _same(version: str) -> tuple[int, tuple[int, ...], str]:
    """Return what two spellings of one version have in common: 1.0 is 1.0.0, 1.0-rc.1 is 1.0rc1."""
    match = _RELEASE.fullmatch(version.lower().lstrip("v"))
    if match is None:
        return 0, (), version
    release = [int(part) for part in match[2].split(".")]
    while len(release) > 1 and release[-1] == 0:
        release.pop()
    return int(match[1] or 0), tuple(release), re.sub(r"[-_.]", "", match[3])


def _local(text: str) -> str:
    return re.sub(r"[-_.]", ".", text.lower())
