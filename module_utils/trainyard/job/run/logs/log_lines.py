# SPDX-License-Identifier: Apache-2.0
"""Log lines of ranks for one terminal while a job runs: with their ranks, equal lines once, and not too many.

Lines are cut here and made printable where they are shown (base/visible.py). Omitted bytes and lines are counted
and reported.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ....base.findings import Finding, counted
from ....base.spans import ranges
from ....base.visible import ESCAPE_SEQUENCE, as_overwritten

# Upper bound for the nodes that are asked for lines: each is visited about every second.
MAX_NODES = 64
# Upper bounds: characters of a line and lines that are shown at once; bytes that are read of a rank at once.
MAX_CHARACTERS, MAX_LINES, MAX_BYTES = 400, 40, 1 << 16
# Bytes of older output that are shown at first.
FIRST_BYTES = 2048
_RANKS = re.compile(r"\d{1,9}(?:-\d{1,9})?(?:,\d{1,9}(?:-\d{1,9})?)*")


def parse_ranks(value: Any, world_size: int) -> tuple[list[int], list[Finding]]:
    """Parse `all`, a list of ranks, or a text such as `0,4-7`; returns the ranks, or findings."""
    text = ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    text = text.replace(" ", "")
    if text == "all":
        return list(range(world_size)), []
    ranks: set[int] = set()
    if _RANKS.fullmatch(text):
        for part in text.split(","):
            first, _, end = part.partition("-")
            last = int(end or first)
            # A typo may have nine digits.
            ranks.update([last], range(int(first), min(last, world_size)))
            ranks.update([] if int(first) <= last else [world_size])
    if ranks and max(ranks) < world_size:
        return sorted(ranks), []
    expected = f"all, or ranks from 0 to {world_size - 1} such as 0,4-7"
    return [], [Finding("follow", repr(value)[:100], expected, "correct follow")]


def logs(plan: Mapping[str, Any], ranks: Sequence[int]) -> dict[str, dict[str, int]]:
    """Return for each host the logs to follow, by name, with the rank of each."""
    name, followed = plan["rank_log"], set(ranks)
    ranks_of = {node["host"]: followed.intersection(node["ranks"]) for node in plan["nodes"]}
    if plan.get("min_nodes"):
        # Ranks may move to other nodes.
        ranks_of = dict.fromkeys(ranks_of, followed)
    # A spare may run any of these ranks.
    ranks_of.update({spare["host"]: followed for spare in plan.get("spares", ())})
    return {
        host: {name.replace("{rank}", str(rank)): rank for rank in sorted(own)} for host, own in ranks_of.items() if own
    }


def too_far(plan: Mapping[str, Any], nodes: int, check: str, fewer: str) -> list[Finding]:
    """Find nodes that cannot be visited every second: those that a scheduler has yet to choose, or too many."""
    if "engine" in plan and not plan.get("nodes"):
        kind = plan["engine"]["kind"]
        found, expected = f"a job of {kind}, whose nodes are not known", "a job whose nodes have their monitors"
        later = f"; watch.yml takes it once the job runs under {kind}" if plan.get("job_dir") else ""
        action = f"leave {check} out{later}; logs.yml brings the logs, and the report as it is then"
        return [Finding(check, found, expected, action)]
    if nodes > MAX_NODES:
        expected = f"at most {MAX_NODES}, as each is visited again and again"
        return [Finding(check, counted(nodes, "node"), expected, fewer)]
    return []


def findings(plan: Mapping[str, Any], follow: Any, live: bool) -> list[Finding]:
    """Find why the ranks of a plan cannot be followed, or its page cannot be kept up to date."""
    ranks, found = parse_ranks(follow, plan["world_size"]) if follow not in (None, "") else ([], [])
    if ranks:
        found += too_far(plan, len(logs(plan, ranks)), "follow", "name fewer ranks, as in 0,4-7")
    if live:
        found += too_far(plan, len(plan["nodes"]), "live", "leave live out; logs.yml writes the page as it is then")
    return found


def cut(content: bytes) -> tuple[list[str], int]:
    """Return the complete lines of the content, and how many bytes they are; a progress bar ends lines with \\r."""
    end = max(content.rfind(b"\n"), content.rfind(b"\r")) + 1
    if not end and len(content) >= MAX_BYTES:
        # One endless line.
        end = len(content)
    text = content[:end].decode("utf-8", "replace")
    return [_clean(line) for line in text.split("\n") if line.strip()], end


def _clean(line: str) -> str:
    line = ESCAPE_SEQUENCE.sub("", as_overwritten(line)).rstrip()
    return line if len(line) <= MAX_CHARACTERS else f"{line[:MAX_CHARACTERS]} ..."


def folded(lines: Mapping[int, Sequence[str]], most: int = MAX_LINES) -> list[str]:
    """Return the lines of ranks as they are shown, equal lines of several ranks once, at most `most`.

    The order of each rank's lines is kept; ranks are merged by the position of each line in the new output.
    """
    ranks_of: dict[tuple[str, int], list[int]] = {}
    place: dict[tuple[str, int], int] = {}
    for rank in sorted(lines):
        often: dict[str, int] = {}
        for at, line in enumerate(lines[rank]):
            # If a rank repeats a line, the repetition is a line of its own.
            key = line, often.get(line, 0)
            often[line] = key[1] + 1
            ranks_of.setdefault(key, []).append(rank)
            place[key] = max(at, place.get(key, 0))
    ordered = sorted(ranks_of, key=lambda key: (place[key], ranks_of[key][0]))
    shown = [f"[{ranges(ranks_of[key])}] {key[0]}" for key in ordered[:most]]
    rest = ordered[most:]
    if rest:
        of = ranges({rank for key in rest for rank in ranks_of[key]})
        shown.append(f"[{of}] ... {counted(len(rest), 'more line')}, in the logs")
    return shown
