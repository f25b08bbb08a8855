# SPDX-License-Identifier: Apache-2.0
"""Logins between nodes that verify the ssh mesh: which node tests which peers, and the reason where a login fails."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence


def distances(count: int, most: int | None) -> list[int]:
    """Return the distances, on a ring of `count` nodes, to the peers that each node tests, nearest first.

    Without `most`, these are all others. With it, they are 1, 2, 4, 8, ... up to half of the ring, then the nearest:
    so every node tests neighbors (mostly on its own switch) and distant nodes (mostly on other switches).
    """
    others = range(1, count)
    if most is None or most >= len(others):
        return list(others)
    far = [1 << power for power in range(count.bit_length()) if 1 << power <= count // 2][:most]
    near = [one for one in others if one not in far]
    return sorted([*far, *near[: most - len(far)]])


def peers(names: Sequence[str], own: str, most: int | None, changed: Collection[str] | None = None) -> list[str]:
    """Choose the peers that a node tests, by `distances`. Every node is tested by as many others.

    `changed` names the nodes that this run changed: then only pairs with one of them remain, and the next node on the
    ring, so that each node is still tested once in both directions. The order starts behind the node itself, so that
    nodes that test at the same time do not all log in to the first one.
    """
    place = names.index(own)
    chosen = [names[(place + distance) % len(names)] for distance in distances(len(names), most)]
    return [one for at, one in enumerate(chosen) if changed is None or not at or one in changed or own in changed]


def partners(count: int, most: int | None) -> int:
    """Return how many of `count` nodes are tested with each node, in either direction."""
    tested = distances(count, most)
    return len({*tested, *(count - distance for distance in tested)})


def parse_peers(text: str) -> int | None:
    """Read `all` (None) or a number of peers from 1 on. Raises ValueError for anything else."""
    if text == "all":
        return None
    if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) < 1:
        raise ValueError(f"peers are {text!r}; expected 'all' or a number of peers from 1 on")
    return int(text)


def ssh_reason(output: str, status: int) -> str:
    """Return ssh's own reason for a failure on one line, without frames and repeated warnings."""
    lines = [line.strip() for line in output.splitlines() if line.strip().strip("@ ")]
    lines = [line for line in lines if not line.startswith(("debug", "Warning: Permanently added"))]
    return "; ".join(dict.fromkeys(lines[-3:])) or f"ssh ended with exit status {status} and without a message"


def failure_records(own: str, failures: Iterable[tuple[str, str, str]]) -> list[dict[str, str]]:
    """Return (peer, target, reason) as records of host, peer, targets and reason, targets with one reason together."""
    targets: dict[tuple[str, str], list[str]] = defaultdict(list)
    for peer, target, reason in failures:
        targets[peer, reason.replace(f"@{target}:", f"@{peer}:")].append(target)
    return [
        {"host": own, "peer": peer, "targets": ", ".join(names), "reason": reason}
        for (peer, reason), names in targets.items()
    ]
