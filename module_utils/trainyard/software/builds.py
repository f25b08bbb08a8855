# SPDX-License-Identifier: Apache-2.0
"""Builds that one node makes and others copy: which node builds, which copies from it, and what stops either.

A record in the prefix names the sources of the build; with an equal one there is nothing to do. A state is what
trainyard_node/software/build_prefix.py reads.
"""

from __future__ import annotations

import posixpath
import tarfile
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ..base.findings import Finding

State = Mapping[str, Any]
Record = dict[str, Any]

# Upper bound for the members of an archive that one finding names.
_MAX_FAULTS = 3


def place_findings(state: State, record: Record, prefix: str, min_free_mb: int, role: str) -> list[Finding]:
    """Find what stops a build or a copy at its prefix: a foreign folder there, or too little space.

    Findings name the variables ROLE_prefix and ROLE_min_free_mb of `role`.
    """
    findings = []
    if state["prefix_kind"] == "foreign":
        found = f"{prefix}, which this role did not make"
        expected = "a folder of its own for what is built"
        action = f"remove it, or set {role}_prefix to another folder"
        findings.append(Finding(f"{role}_prefix", found, expected, action, host=state["host"]))
    if state["record"] != record and state["free_mb"] < min_free_mb:
        found = f"{state['free_mb']} MB free for {prefix}"
        expected = f"at least {min_free_mb} MB"
        findings.append(Finding("disk", found, expected, f"make room, or lower {role}_min_free_mb", host=state["host"]))
    return findings


def share_out(members: Sequence[tuple[State, Record]]) -> dict[str, dict[str, Any]]:
    """Plan for nodes of one kind: `none` (it is there), `build`, or `copy` from the node that has or builds it.

    The first node builds, unless another one has it already.
    """
    source = next((state["host"] for state, record in members if state["record"] == record), members[0][0]["host"])
    shares = {}
    for state, record in members:
        action = "none" if state["record"] == record else "build" if state["host"] == source else "copy"
        shares[state["host"]] = {"action": action, "source": source, "record": record}
    return shares


def copies(found: Sequence[Mapping[str, Any]], nodes: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return the nodes that need a copy, with the node from which; those that share the prefix have the build by then.

    `found` says of each node whether its requested build is `there`; `nodes` is the plan (share_out).
    """
    lacking = [each["host"] for each in found if not each["there"]]
    return {host: nodes[host]["source"] for host in lacking if nodes[host]["action"] == "copy"}


def shared_findings(found: Sequence[Mapping[str, Any]], prefix: str) -> list[Finding]:
    """Return findings on nodes whose prefix has what another node needs, once all builds and copies are in place."""
    text = f"{prefix} has the build of another host, which shares that folder and is of another kind"
    return [of_another_kind("build", text, each["host"]) for each in found if not each["there"]]


def of_another_kind(check: str, found: str, host: str) -> Finding:
    """Return the finding on a host that needs another build in a folder that it shares."""
    expected = "hosts of one system and hardware where they share a folder"
    action = "set trainyard_root to a path that is local on each host"
    return Finding(check, found, expected, action, host=host)


def member_fault(member: tarfile.TarInfo, above: Mapping[str, bool], links: Collection[str]) -> str:
    """Return why other nodes must not unpack a member of an archive that a node packed; "" when they may.

    `above` maps the names of the members before it to whether they are files; `links` names all symbolic links. Root on
    the building node could plant a program that gives other nodes' training user more rights, or write elsewhere.
    """
    name = posixpath.normpath(member.name)
    parts = name.split("/")
    if name.startswith("/") or ".." in member.name.split("/"):
        return f"{member.name!r}, which leaves the folder"
    if any("/".join(parts[:end]) in links for end in range(1, len(parts))):
        return f"{member.name!r}, which lies behind a link"
    if name in above:
        return f"{member.name!r}, which comes twice"
    if not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
        return f"{member.name!r}, which is no file, folder or link"
    leads_out = member.issym() and not _stays(parts[:-1], member.linkname)
    if leads_out or (member.islnk() and not above.get(posixpath.normpath(member.linkname))):
        return f"{member.name!r}, a link to {member.linkname!r}"
    # A folder inherits setgid from the one above, such as /usr/local. It gives nobody a right, and the copy drops it.
    if member.mode & (0o4000 if member.isdir() else 0o6000):
        return f"{member.name!r} with mode {member.mode & 0o7777:o}"
    if member.uid or member.gid:
        return f"{member.name!r} of user {member.uid} and group {member.gid}"
    return ""


def _stays(folder: Sequence[str], link: str) -> bool:
    """Return whether a link stays below the top folder. `..` may only come first: behind a link it leads elsewhere."""
    steps = link.split("/")
    up = next((number for number, step in enumerate(steps) if step != ".."), len(steps))
    return bool(link) and not link.startswith("/") and up <= len(folder) and ".." not in steps[up:]


def archive_finding(host: str, faults: Sequence[str]) -> Finding:
    """Return the finding about an archive that a node packed, with its first faults."""
    more = [f"{len(faults) - _MAX_FAULTS} more like these"] if len(faults) > _MAX_FAULTS else []
    expected = "files of root, folders and links among them, without setuid or setgid"
    action = "find out who put it there, remove the build on that node, and run site.yml again"
    return Finding("archive of what it built", "; ".join([*faults[:_MAX_FAULTS], *more]), expected, action, host=host)
