# SPDX-License-Identifier: Apache-2.0
"""Read from `pip index versions` whether a package index has a pinned package for a Python.

pip knows its own configuration, the tags of wheels and what they require of Python, so only its answer is read here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..base.findings import Finding
from .requirements import Pin, normal, without_password
from .wheel_tags import Machine

# Upper bound for the versions that a finding lists.
_MAX_VERSIONS = 8
_SILENT = re.compile(
    r"(?:Retrying \(Retry\(.*?\)\) after connection broken by|Could not fetch URL .*?:|There was a problem .*?:)\s*(.+)"
)
_REASON = re.compile(r"(Connection refused|Name or service not known|Temporary failure in name resolution|timed? ?out"
                     r"|No route to host|Network is unreachable|certificate verify failed|Connection reset by peer)",
                     re.IGNORECASE)  # fmt: skip
_UNSATISFIED = re.compile(
    r"Could not find a version that satisfies the requirement (([A-Za-z0-9][\w.-]{0,100})[^\s(]{0,200})"
    r" \(from ([\w.-]{1,100})\)"
)
_VERSIONS = re.compile(r"^Available versions: (.+)$", re.MULTILINE)
_NOTHING = "No matching distribution found"
# What roles of NVIDIA's wheels have no variable for, by the beginning of their variables.
_LACKING = {"cuda_toolkit_wheel": ("extra_index_urls", "pip_args"), "nccl": ("pip_args",), "cudnn": ("pip_args",)}


@dataclass(frozen=True)
class Offered:
    """The versions that fit a Python; `silent`: why an index did not answer; `known`: whether pip gave an answer."""

    versions: tuple[str, ...] = ()
    silent: str = ""
    known: bool = True


def read_offered(status: int, output: str, complaints: str) -> Offered:
    """Read the output of pip, and beside it warnings of indexes that do not answer."""
    printed = f"{output}\n{complaints}"
    found = _SILENT.search(printed)
    reason = _REASON.search(printed) if found else None
    silent = reason[1] if reason else found[1].strip()[:200] if found else ""
    if not found and "is not a trusted or secure host" in printed:
        silent = "pip trusts no http of another machine; https is trusted, or --trusted-host"
    versions = _VERSIONS.search(output)
    if status == 0:
        return Offered(tuple(versions[1].split(", ")), silent) if versions else Offered(known=False)
    return Offered((), silent) if _NOTHING in complaints else Offered(known=False)


def where(index_url: str, extra_index_urls: Sequence[str], find_links: Sequence[str], no_index: bool) -> str:
    """Return in words where pip looks."""
    named = [] if no_index or not index_url else [index_url]
    named += [] if no_index else list(extra_index_urls)
    shown = [without_password(address) for address in [*named, *find_links]]
    if no_index or index_url:
        return " and ".join(shown)
    return " and ".join(["the index of pip's own configuration there", *shown])


def check(pin: Pin, offered: Offered, looked: str, python: str, prefix: str) -> Finding | None:
    """Return why pip would not find a package; None where it would, or where that is unknown.

    `looked` is where pip searches, in words, and `python` for which Python and machine; `prefix` begins the names of
    the variables that configure it, such as `pytorch`.
    """
    if not offered.known or any(pin.accepts(version) for version in offered.versions):
        return None
    if offered.silent and not offered.versions:
        expected = "a package index that answers on the node"
        action = f"see how the node reaches it (name, proxy, certificate), or name a mirror in {prefix}_index_url"
        return Finding(f"index for {pin.name}", f"{looked} does not answer: {offered.silent}", expected, action)
    listed = ", ".join(offered.versions[:_MAX_VERSIONS])
    listed += f", ... ({len(offered.versions) - _MAX_VERSIONS} more)" if len(offered.versions) > _MAX_VERSIONS else ""
    # PyTorch has an index for each of its builds.
    of_builds = ["builds_url"] if pin.name == "torch" and "+" in pin.version else []
    sources = _variables(prefix, *of_builds, "index_url", "extra_index_urls", "find_links")
    found = f"{looked} has {listed or 'none at all'} for {python}" + (
        f"; one that is named does not answer: {offered.silent}" if offered.silent else ""
    )
    action = f"name the index or folder that has it ({', '.join(sources)}), or another version"
    return Finding(f"index for {pin.name}", found, f"{pin.name} {pin.version}", action)


def of_wheels(finding: Finding, pin: Pin, why: str, machine: Machine, prefix: str) -> Finding:
    """Return the finding on a package whose wheels do not fit a machine, from that of `check`."""
    action = (
        f"choose a version of {pin.name} that has a wheel for it, hosts that fit, or name an index or folder with such "
        f"a wheel ({prefix}_index_url, {prefix}_find_links)"
    )
    return replace(finding, found=f"{why}; {finding.found}", expected=f"a wheel for {machine}", action=action)


def wrong_wheel(pin: Pin, why: str, machine: Machine, variables: str) -> Finding:
    """Return the finding on a wheel that is named by its address, and does not fit a machine."""
    action = f"name a wheel that fits in {variables}, for these hosts alone if others have another machine"
    return Finding(f"wheel of {pin.name}", why, f"a wheel for {machine}", action)


def without_candidate(output: str) -> tuple[str, str, str] | None:
    """Return the dependency for which pip finds no wheel: name, requirement, the package that needs it; else None."""
    found = _UNSATISFIED.search(output)
    return (normal(found[2]), found[1], found[3]) if found else None


def of_dependency(
    name: str, requirement: str, by: str, looked: str, python: str, prefix: str, archives: bool
) -> Finding:
    """Return the finding on a dependency without a wheel; `archives`: some of its versions are source archives."""
    kind = "no wheel, some versions as source archives only," if archives else "nothing that fits"
    found = f"{by} needs {requirement}, and {looked} has {kind} for {python}"
    action = f"choose another version of {by}, or name a folder with a wheel of {name} in {prefix}_find_links"
    action += _of_archive(name, prefix) if archives else ""
    return Finding(f"index for {name}", found, f"a wheel of {requirement}", action)


def archive_only(pin: Pin, looked: str, python: str, prefix: str) -> Finding:
    """Return the finding on a package that is only there as a source archive; the arguments are those of `check`."""
    found = f"{looked} has {pin.name} {pin.version} as a source archive only for {python}"
    expected = "a wheel, as a source archive runs code of its own when it is installed"
    action = f"choose a version with a wheel, or build one and name its folder in {prefix}_find_links"
    return Finding(f"index for {pin.name}", found, expected, action + _of_archive(pin.name, prefix))


def _variables(prefix: str, *names: str) -> list[str]:
    """Return the variables that there are of these."""
    return [f"{prefix}_{name}" for name in names if name not in _LACKING.get(prefix, ())]


def _of_archive(name: str, prefix: str) -> str:
    variables = _variables(prefix, "pip_args")
    return f"; if you trust the archive, set {variables[0]}: [--no-binary={name}]" if variables else ""
