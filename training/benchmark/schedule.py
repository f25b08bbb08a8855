# SPDX-License-Identifier: Apache-2.0
"""Which pairs a process measures, and what it says of a pair. Bandwidth in GB/s of 10^9 bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Pair:
    """A pair of this process; `first` is whether it is the first of the two."""

    round: int
    number: int
    hosts: tuple[str, str]
    first: bool
    rail: int

    @property
    def partner(self) -> str:
        """Host of the other one."""
        return self.hosts[1 if self.first else 0]

    @property
    def key(self) -> str:
        """Where the two find each other in the head's store."""
        return f"{self.round}/{self.number}/{self.rail}"


def own_pairs(schedule: Mapping[str, Any], node_rank: int, rail: int) -> list[Pair]:
    """Return the pairs of a node, in the order of the rounds. Raises ValueError for a schedule that has no such node.

    A host may sit out rounds, and may be in none.
    """
    hosts = schedule["hosts"]
    if node_rank >= len(hosts):
        raise ValueError(f"{len(hosts)} hosts in the schedule, and this is node {node_rank}, counted from 0")
    me = hosts[node_rank]
    return [
        Pair(number, place, (pair[0], pair[1]), pair[0] == me, rail)
        for number, pairs in enumerate(schedule["rounds"])
        for place, pair in enumerate(pairs)
        if me in pair
    ]


def checked(pair: Pair, told: Sequence[Mapping[str, Any]], timeout: int) -> dict[str, Any] | None:
    """Return the line to print for a pair: the measurement, or why there is none; None when the partner prints it."""
    line = {
        "hosts": list(pair.hosts),
        "round": pair.round,
        "rail": pair.rail,
        "busbw": None,
        "wrong": None,
        "error": "",
    }
    by_kind = {kind: each for each in told for kind in ("met", "busbw", "done", "error") if kind in each}
    if "busbw" in by_kind:
        return {**line, **by_kind["busbw"]}
    # Events after its measurement do not concern the pair.
    if "done" in by_kind:
        return None
    if "met" not in by_kind:
        reason = f"{pair.partner} did not come within {timeout} s"
    elif "error" in by_kind:
        reason = "the two met, and then: "
    else:
        reason = f"the two met, and had no result within {timeout} s"
    said = by_kind.get("error", {}).get("error", "")
    return {**line, "error": f"{reason}{said}" if "met" in by_kind else f"{reason} ({said})" if said else reason}
