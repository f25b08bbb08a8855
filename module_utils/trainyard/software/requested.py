# SPDX-License-Identifier: Apache-2.0
"""The software that hosts are to get, checked before anything is touched: input of roles, files on the controller.

The nodes check the rest: trainyard_node/software/can_install.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..base.findings import Finding, grouped
from . import words
from .builds import of_another_kind
from .package_index import Offered, check
from .requirements import Pin, parse

# By part of the software, as site_software (step request) records it.
Requests = Mapping[str, Mapping[str, Any]]


def input_findings(requests: Mapping[str, Requests]) -> Iterator[Finding]:
    """Yield the findings on the input of all roles, for each host."""
    for host, parts in requests.items():
        for part in parts.values():
            yield from (Finding.from_dict(finding).on(host) for finding in part.get("findings") or ())


def build_findings(
    requests: Mapping[str, Requests],
    answers: Mapping[str, Mapping[str, Any]],
    sharing: Mapping[str, Sequence[Sequence[str]]],
) -> Iterator[Finding]:
    """Yield why parts that one host of each platform builds for the others cannot be built.

    The first host builds if none has the build. Hosts of two platforms that share a folder need two builds in it;
    `sharing` has by folder the groups of hosts that share it.
    """
    parts = (
        (name, host)
        for host in requests
        if host in answers
        for name, part in requests[host].items()
        if part.get("built")
    )
    platforms = {host: answer.get("platform", "") for host, answer in answers.items()}
    for name, hosts in grouped(parts).items():
        for alike in grouped((platforms[host], host) for host in hosts).values():
            faults = [(answers[host].get("builds") or {}).get(name) for host in alike]
            if None not in faults:
                yield from (Finding.from_dict(each).on(alike[0]) for each in faults[0] or ())
        for path, groups in sharing.items():
            for group in groups:
                within = [host for host in group if host in hosts and _is_below(requests[host][name], path)]
                yield from _of_two_platforms(name, path, {host: platforms[host] for host in within})


def _of_two_platforms(name: str, path: str, platforms: Mapping[str, str]) -> Iterator[Finding]:
    """Yield the hosts that share a folder with the first one, and need another build in it."""
    first = next(iter(platforms), "")
    for host, here in platforms.items():
        if here != platforms[first]:
            found = f"{path} is shared with {first}, whose system is {platforms[first]}; here it is {here}"
            yield of_another_kind(f"build of {name}", found, host)


def _is_below(part: Mapping[str, Any], folder: str) -> bool:
    return any(source["unless"].startswith(f"{folder}/") for source in part["sources"])


def seen_of(parts: Requests, seen: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the parts that are complete on a host: what it reported (`result`), and what was requested (`of`)."""
    return {
        name: {"of": part.get("environment") or part.get("data"), "result": seen[name]}
        for name, part in parts.items()
        if name in seen
    }


def by_source(parts: Requests) -> list[dict[str, Any]]:
    """Return the packages of apt (`apt`) of all parts, grouped by source, so that each source gets one request."""
    sources: dict[str, dict[str, Any]] = {}
    for each in (part["apt"] for part in parts.values() if part.get("apt")):
        source = {name: value for name, value in each.items() if name != "packages"}
        together = sources.setdefault(repr(sorted(source.items())), {**source, "packages": []})
        together["packages"] += each["packages"]
    return list(sources.values())


def needed_of_controller(requests: Mapping[str, Requests], needed: Mapping[str, list[str]]) -> list[Mapping[str, Any]]:
    """Return the sources that the controller is to send to any host, each once.

    `needed` names by host the sources that are missing there. A source without a file comes from the part's `package`.
    """
    sources: dict[str, Mapping[str, Any]] = {}
    for host, names in needed.items():
        for part in requests[host].values():
            for source in part.get("sources") or ():
                # A repository that is not read by http has neither: git itself asks for it.
                of_controller = source.get("local_file") or part.get("package")
                if source["what"] in names and not source.get("url") and of_controller:
                    complete = source if source.get("local_file") else {**part["package"], **source}
                    sources.setdefault(repr(sorted(complete.items())), complete)
    return list(sources.values())


def file_finding(source: Mapping[str, Any], there: str | None) -> Finding | None:
    """Return the finding on a file on the controller; `there` is its sha256, None where it does not exist."""
    expected = str(source.get("sha256") or "")
    if there is not None and expected in ("", there):
        return None
    return Finding(
        f"source of {source['what']}",
        f"{source['local_file']} on the controller " + (f"has sha256 {there}" if there else "does not exist"),
        f"a file with sha256 {expected}" if expected else "a file",
        f"correct {source['variables']}" + (", or the sum if it is another file on purpose" if there else ""),
    )


def index_query(source: Mapping[str, Any]) -> tuple[Pin, list[str], dict[str, str]]:
    """Return the package that a source asks an index for, pip's options, and its variables. Raises ValueError.

    They become words of a command on the controller.
    """
    pin = parse(str(source["package"]), (3, 11))
    if pin is None:
        raise words.WordError(f"the package {source['package']!r} is for another Python")
    address = words.index_address(str(source.get("index_url") or ""))
    return pin, words.platform_options(str(source["platform"])), {"PIP_INDEX_URL": address} if address else {}


def query_finding(source: Mapping[str, Any], error: ValueError) -> Finding:
    """Return the finding on a source of which pip cannot be asked."""
    expected = "a pinned package, tags of a platform, and an address of http, https or file"
    return Finding(f"source of {source['what']}", str(error), expected, f"correct {source['variables']}")


def package_finding(source: Mapping[str, Any], offered: Offered) -> Finding | None:
    """Return the finding where the controller's pip would not find the package of a source."""
    pin = parse(str(source["package"]), (3, 11))
    found = check(pin, offered, "the package index on the controller", "any Linux on x86_64", "") if pin else None
    if found is None:
        return None
    return replace(found, check=f"source of {source['what']}", action=f"set {source['variables']}")
