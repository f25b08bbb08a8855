# SPDX-License-Identifier: Apache-2.0
"""What is built once and copied: who builds, who gets a copy from whom, and what stops either.

A record lies in the prefix of what was built and says what it was built from; an equal record means that there is
nothing to do. A state is what trainyard_node/software/builds.py reads of a node's prefix.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..findings.findings import Finding

State = Mapping[str, Any]
Record = dict[str, Any]


def place_findings(state: State, record: Record, prefix: str, min_free_mb: int, role: str) -> list[Finding]:
    """Find what stops a build or a copy at its prefix: somebody else's folder there, or too little room.

    role is the one whose variables ROLE_prefix and ROLE_min_free_mb are to be named.
    """
    findings = []
    if state["prefix_kind"] == "foreign":
        findings.append(
            Finding(
                host=state["host"],
                check=f"{role}_prefix",
                found=f"{prefix}, which this role did not make",
                expected="a folder of its own for what is built",
                action=f"remove it, or set {role}_prefix to another folder",
            )
        )
    if state["record"] != record and state["free_mb"] < min_free_mb:
        findings.append(
            Finding(
                host=state["host"],
                check="disk",
                found=f"{state['free_mb']} MB free for {prefix}",
                expected=f"at least {min_free_mb} MB",
                action=f"make room, or lower {role}_min_free_mb",
            )
        )
    return findings


def share_out(members: Sequence[tuple[State, Record]]) -> dict[str, dict[str, Any]]:
    """Plan for nodes of one kind: `none` (it is there), `build`, or `copy` from the node that has or builds it.

    The first node builds, unless another one has it already.
    """
    source = next((state["host"] for state, mine in members if state["record"] == mine), members[0][0]["host"])
    return {
        state["host"]: {
            "action": "none" if state["record"] == mine else "build" if state["host"] == source else "copy",
            "source": source,
            "record": mine,
        }
        for state, mine in members
    }
