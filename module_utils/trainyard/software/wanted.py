# SPDX-License-Identifier: Apache-2.0
"""What hosts are to get, judged before anything is touched: the input of roles, and files on the controller.

Pure. What a machine or an index says of it is asked on the nodes (trainyard_node/software/can_install.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ..findings.findings import Finding
from .package_index import Offered, judge
from .requirements import parse

Wanted = Mapping[str, Mapping[str, Any]]
_DO = r"(?P<action>(?:give|set|leave|take|name another|correct) .+?)"
_EXPECTED = re.compile(rf"(?P<found>.+?), expected (?P<expected>.+?)(?:; {_DO})?\.?")
_ACTION = re.compile(rf"(?P<found>.+?)[:;] {_DO}\.?")


def finding_of(part: str, fault: str) -> Finding:
    """Make a finding of one sentence about the input: `FOUND, expected EXPECTED; DO` or `FOUND: give ...`."""
    match = _EXPECTED.fullmatch(fault) or _ACTION.fullmatch(fault)
    said = match.groupdict() if match else {"found": fault}
    return Finding(
        f"input of {part}",
        said["found"],
        said.get("expected") or "a choice that can be installed",
        said.get("action") or f"correct it (roles/{part}/README.md)",
    )


def input_findings(wanted: Mapping[str, Wanted]) -> Iterator[Finding]:
    """Yield what is wrong with the input of any role, for each host."""
    for host, parts in wanted.items():
        for name, part in parts.items():
            yield from (Finding.from_dict(finding).on(host) for finding in part.get("findings") or ())
            for fault in part.get("faults") or ():
                yield finding_of(name, str(fault)).on(host)


def seen_of(parts: Wanted, seen: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return what a host has said to be whole, by part: what that is (`result`), and what was wanted (`of`)."""
    return {
        name: {"of": part.get("environment") or part.get("data"), "result": seen[name]}
        for name, part in parts.items()
        if name in seen
    }


def by_source(parts: Wanted) -> list[dict[str, Any]]:
    """Return what apt is to have (`apt`) of all parts, that of one source together, so that it is asked once."""
    sources: dict[str, dict[str, Any]] = {}
    for each in (part["apt"] for part in parts.values() if part.get("apt")):
        source = {name: value for name, value in each.items() if name != "packages"}
        together = sources.setdefault(repr(sorted(source.items())), {**source, "packages": []})
        together["packages"] += each["packages"]
    return list(sources.values())


def needed_of_controller(wanted: Mapping[str, Wanted], needed: Mapping[str, list[str]]) -> list[Mapping[str, Any]]:
    """Return the sources that the controller is to bring to any host, each once.

    `needed` says of each host which of its sources it has not got yet, by what they are. One without a file is taken
    from the part's `package`.
    """
    sources: dict[str, Mapping[str, Any]] = {}
    for host, names in needed.items():
        for part in wanted[host].values():
            for source in part.get("sources") or ():
                if source["what"] in names and not source.get("url"):
                    whole = source if source.get("local_file") else {**part["package"], **source}
                    sources.setdefault(repr(sorted(whole.items())), whole)
    return list(sources.values())


def file_finding(source: Mapping[str, Any], there: str | None) -> Finding | None:
    """Return what is wrong with a file on the controller; `there` is its sha256, None where it does not exist."""
    wanted = str(source.get("sha256") or "")
    if there is not None and wanted in ("", there):
        return None
    return Finding(
        f"source of {source['what']}",
        f"{source['local_file']} on the controller " + (f"has sha256 {there}" if there else "does not exist"),
        f"a file with sha256 {wanted}" if wanted else "a file",
        f"correct {source['variables']}, or the sum if it is another file on purpose",
    )


def package_finding(source: Mapping[str, Any], offered: Offered) -> Finding | None:
    """Return why the controller's pip would not find the package that a source is taken from."""
    pin = parse(str(source["package"]), (3, 11))
    looked = "the package index on the controller"
    found = judge(pin, offered, looked, "any Linux on x86_64", "") if pin else None
    if found is None:
        return None
    return replace(found, check=f"source of {source['what']}", action=f"set {source['variables']}")
