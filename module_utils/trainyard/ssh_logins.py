# SPDX-License-Identifier: Apache-2.0
"""Logins between the nodes that prove the mesh: who tests whom, and what ssh says where one fails.

Apart from ssh.py, as it goes to every node with every launch.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence


def peers(names: Sequence[str], own: str, most: int | None) -> list[str]:
    """Choose whom a node tests: all others, or the `most` next ones around the ring of nodes.

    The order starts behind the node itself, so that nodes that test at the same time do not all call on the first one.
    Every node is tested by `most` others.
    """
    place = names.index(own)
    others = [*names[place + 1:], *names[:place]]
    return others if most is None else others[:most]


def parse_peers(text: str) -> int | None:
    """Read `all` (None) or a number of peers from 1 on. Raises ValueError for anything else."""
    if text == "all":
        return None
    if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) < 1:
        raise ValueError(f"ssh_mesh_verify_peers is {text!r}; expected 'all' or a number of peers from 1 on")
    return int(text)


def ssh_reason(output: str, status: int) -> str:
    """Return ssh's own reason for a failure on one line: what it said, without frames and repeated warnings."""
    lines = [line.strip() for line in output.splitlines()]
    said = [line for line in lines if line.strip("@ ") and not line.startswith(("debug", "Warning: Permanently added"))]
    return "; ".join(dict.fromkeys(said[-3:])) or f"ssh ended with exit status {status} and said nothing"


def pair_lines(own: str, failures: Iterable[tuple[str, str, str]]) -> list[str]:
    """Write (peer, target, reason) as lines `n2 -> n4 (n4, 10.0.0.4): reason`, targets with one reason together."""
    targets: dict[tuple[str, str], list[str]] = defaultdict(list)
    for peer, target, reason in failures:
        plain = reason.replace(f"@{target}:", f"@{peer}:")
        targets[peer, plain].append(target)
    return [f"{own} -> {peer} ({', '.join(names)}): {reason}" for (peer, reason), names in targets.items()]
