# SPDX-License-Identifier: Apache-2.0
"""Compare two answers of NCCL's RAS: which ranks of a communicator have called less than the others, or are gone.

Counts of a healthy job differ at any moment, so only a communicator whose counts are all the same in both answers is
judged. Source: NCCL 2.28.7 and newer, src/ras/client_support.cc (`SET FORMAT json`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from ....base.visible import visible
from .flight_recorder import MAX_GROUPS, MAX_TEXT


def _communicators(answer: str) -> dict[str, Mapping[str, Any]]:
    """Return the communicators of an answer by hash; none where it is not JSON of this form."""
    try:
        return {str(each["hash"]): each for each in json.loads(answer[answer.index("{") :])["communicators"]}
    except (ValueError, LookupError, TypeError, RecursionError):
        return {}


def _counts(communicator: Mapping[str, Any]) -> dict[int, Mapping[str, int]]:
    return {int(each["rank"]): dict(each["collective_counts"]) for each in communicator["ranks"]}


def lines(before: str, after: str, apart_s: float) -> list[str]:
    """Return lines on ranks that differ; `before` and `after` are two answers, which came some seconds apart."""
    earlier, found = _communicators(before), []
    for name, each in _communicators(after).items():
        try:
            counts = _counts(each)
            if name in earlier and counts == _counts(earlier[name]):
                found += [*_missing(each), *_behind(each, counts, apart_s)]
        except (ValueError, LookupError, TypeError, AttributeError):
            continue
    return [visible(line)[:MAX_TEXT] for line in found[:MAX_GROUPS]]


def _who(rank: Mapping[str, Any], communicator: Mapping[str, Any]) -> str:
    host, pid = rank.get("host", "?"), rank.get("pid", "?")
    return f"rank {rank.get('rank', '?')} of a communicator of {communicator['size']} (process {pid} on {host})"


def _missing(communicator: Mapping[str, Any]) -> list[str]:
    return [
        f"{_who(each, communicator)} is {'considered dead' if each['status'].get('considered_dead') else 'silent'}"
        for each in communicator.get("missing_ranks") or ()
    ]


def _behind(communicator: Mapping[str, Any], counts: Mapping[int, Mapping[str, int]], apart_s: float) -> list[str]:
    """Return lines on ranks whose counts differ from those of more than half."""
    by_rank = {int(each["rank"]): each for each in communicator["ranks"]}
    found = []
    for call in dict.fromkeys(call for own in counts.values() for call in own):
        called = {rank: int(own.get(call, 0)) for rank, own in counts.items()}
        ((usual, ranks),) = Counter(called.values()).most_common(1)
        if 2 * ranks > len(called):
            others = f"{ranks} others {usual} times, the same {apart_s:.0f} s later"
            found += [
                f"{_who(by_rank[rank], communicator)} has called {call} {count} times, {others}"
                for rank, count in called.items()
                if count != usual
            ]
    return found
