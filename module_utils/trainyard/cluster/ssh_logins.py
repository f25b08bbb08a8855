# SPDX-License-Identifier: Apache-2.0
"""Logins between the nodes that prove the mesh: who tests whom, and what ssh says where one fails.

Apart from ssh.py, as it goes to every node with every launch.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence


def distances(count: int, most: int | None) -> list[int]:
    """Return how far away on a ring of `count` nodes those are that each node tests, nearest first.

    All others; or `most`: those 1, 2, 4, 8, ... places on, up to half of the ring, so that every node tests neighbours
    (mostly on its own switch) and nodes far away (mostly on others), then whoever is nearest.
    """
    others = range(1, count)
    if most is None or most >= len(others):
        return list(others)
    far = [1 << power for power in range(count.bit_length()) if 1 << power <= count // 2][:most]
    near = [one for one in others if one not in far]
    return sorted([*far, *near[: most - len(far)]])


def peers(names: Sequence[str], own: str, most: int | None, changed: Collection[str] | None = None) -> list[str]:
    """Choose whom a node tests, as `distances` says. Every node is tested by as many others.

    With `changed`, the nodes that something was changed on, of these pairs only those with one of them; and the next
    node, so that each node still shows that it logs in and lets in. Without: all of them.

    The order starts behind the node itself, so that nodes that test at the same time do not all call on the first one.
    """
    place = names.index(own)
    chosen = [names[(place + distance) % len(names)] for distance in distances(len(names), most)]
    return [one for at, one in enumerate(chosen) if changed is None or not at or one in changed or own in changed]


def partners(count: int, most: int | None) -> int:
    """Return with how many of `count` nodes each one is tested, whoever of the two tests."""
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
    """Return ssh's own reason for a failure on one line: what it said, without frames and repeated warnings."""
    lines = [line.strip() for line in output.splitlines()]
    said = [line for line in lines if line.strip("@ ") and not line.startswith(("debug", "Warning: Permanently added"))]
    return "; ".join(dict.fromkeys(said[-3:])) or f"ssh ended with exit status {status} and said nothing"


def failure_records(own: str, failures: Iterable[tuple[str, str, str]]) -> list[dict[str, str]]:
    """Return (peer, target, reason) as records of host, peer, targets and reason, targets with one reason together."""
    targets: dict[tuple[str, str], list[str]] = defaultdict(list)
    for peer, target, reason in failures:
        plain = reason.replace(f"@{target}:", f"@{peer}:")
        targets[peer, plain].append(target)
    return [
        {"host": own, "peer": peer, "targets": ", ".join(names), "reason": reason}
        for (peer, reason), names in targets.items()
    ]
