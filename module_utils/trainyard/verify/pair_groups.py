# SPDX-License-Identifier: Apache-2.0
"""Find groups of near nodes, such as those of one switch, by what was measured between pairs of nodes. Pure.

All pairs of two groups are slower than those inside a group. Where this does not stand out from the noise, the cluster
is flat, or its switches do not show. A slow node alone is no group.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..base.findings import grouped
from ..cluster import switches

FLAT = "flat or not visible: no pairs of nodes are slower than others beyond the noise"

# By so many standard deviations of the noise pairs inside groups and between them differ at least, and so many times.
_CLEAR, _LEAST_RATIO = 4.0, 1.1
# The part of the pairs inside groups, and of those between, that may be on the other side of the threshold.
_FAR_INSIDE, _NEAR_BETWEEN = 0.2, 0.05
# Noise is uncertain by what few pairs say of it; less than this part of a value is not believed.
_LEAST_NOISE, _FEW = 0.01, 4
# Fewer pairs show nothing, nor do fewer than this number for each node, unless it is half of all.
_LEAST_PAIRS, _PAIRS_OF_NODE = 6, 3
# At most this part of the nodes is near to no other. With so many pairs inside groups a usual gap is enough.
_ALONE, _ENOUGH = 1 / 3, 6
# Among the largest values is what was disturbed: a threshold is looked for in these parts below them.
_UNDISTURBED = 0.95, 0.8
_SIGMA, _PASSES = 1.4826, 6
# A near pair weighs more than a far one: other load makes near pairs far, and nothing makes far ones near.
_NEAR = 3

Pair = tuple[int, int]


def topology(hosts: Sequence[str], measurements: Iterable[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return the topology (cluster/switches.py) by latency, else by bandwidth; None where too few pairs were measured.

    Measurements are those of pair_report.read(); of several of one pair the best counts, as other load only slows.
    """
    measured, place = list(measurements), {host: at for at, host in enumerate(hosts)}
    seen = False
    for key, sign in (("latency_us", 1.0), ("busbw", -1.0)):
        values = grouped(
            (tuple(sorted(place[host] for host in record["hosts"])), sign * math.log(record[key]))
            for record in measured
            if set(record["hosts"]) <= place.keys() and _positive(record.get(key))
        )
        seen = seen or enough(len(hosts), len(values))
        found = groups(len(hosts), {(pair[0], pair[1]): min(of) for pair, of in values.items()})
        if found:
            paths = {hosts[at]: [f"group {number}"] for number, group in enumerate(found, start=1) for at in group}
            return switches.topology("pairs", paths, hosts)
    return switches.topology("pairs", {}, hosts, FLAT) if seen else None


def with_usual(found: Mapping[str, Any] | None, measurements: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the measurements, those between two groups with `usual`: the part of the bandwidth inside that they reach.

    Without it nodes would be blamed for the way to another switch. A node alone is rather slow: its pairs have none.
    """
    known = (found or {}).get("switches", ())
    group = {host: at for at, each in enumerate(known) if len(each["hosts"]) > 1 for host in each["hosts"]}

    def is_between(record: Mapping[str, Any]) -> bool | None:
        at = {group.get(host) for host in record["hosts"]}
        return None if None in at else len(at) > 1

    reached = grouped((is_between(each), each["busbw"]) for each in measurements if _positive(each.get("busbw")))
    usual = 1.0
    if reached.get(True) and reached.get(False):
        usual = min(1.0, _fast(reached[True]) / _fast(reached[False]))
    return [{**each, "usual": usual if is_between(each) else 1.0} for each in measurements]


def _positive(value: Any) -> bool:
    return isinstance(value, (int, float)) and 0 < value < math.inf


def _fast(values: Sequence[float]) -> float:
    """Return the upper quartile: nothing is faster than healthy, and other load only slows."""
    return sorted(values)[math.ceil(0.75 * len(values)) - 1]


def enough(count: int, pairs: int) -> bool:
    """Return whether so many pairs of `count` nodes can show groups: disturbed ones would cut a mere chain anywhere."""
    return pairs >= max(_LEAST_PAIRS, min(_PAIRS_OF_NODE * count, count * (count - 1) / 4))


def groups(count: int, distances: Mapping[Pair, float]) -> list[list[int]]:
    """Return the groups of `count` nodes, single ones among them; [] where no two of several nodes stand out.

    A distance is the logarithm of a value of a pair of nodes, which is smaller for near nodes. Pairs may be missing.
    """
    if not enough(count, len(distances)):
        return []
    for threshold in _thresholds(sorted(distances.values())):
        found = _clusters(count, {pair: distance <= threshold for pair, distance in distances.items()})
        if _stand_out(found, distances, threshold):
            ordered = grouped((group, at) for at, group in enumerate(found))
            return list(ordered.values())
    return []


def _thresholds(ranked: Sequence[float]) -> list[float]:
    """Return what may be the largest distance of near pairs: the best cuts into two classes, and the largest gap.

    A cut by squares sees small classes, one by absolute distances is not moved by pairs that were disturbed.
    """
    sums = [0.0, *itertools.accumulate(ranked)]

    def off(start: int, end: int) -> float:
        middle = (start + end) // 2
        return sums[end] - sums[middle] - (sums[middle] - sums[start]) + ranked[middle] * (2 * middle - start - end)

    def apart(at: int, end: int) -> float:
        return at * (end - at) * ((sums[end] - sums[at]) / (end - at) - sums[at] / at) ** 2

    ends = [max(_LEAST_PAIRS, math.ceil(part * len(ranked))) for part in _UNDISTURBED]
    best = [max(range(1, end), key=lambda at: apart(at, end)) for end in ends]
    best.append(max(range(1, ends[0]), key=lambda at: ranked[at] - ranked[at - 1]))
    best.append(min(range(1, len(ranked)), key=lambda at: off(0, at) + off(at, len(ranked))))
    return list(dict.fromkeys(ranked[at - 1] for at in best))


def _clusters(count: int, near: Mapping[Pair, bool]) -> list[int]:
    """Return the group of each node: it is near to most nodes of its group that it was measured with."""
    partners: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    for (first, second), is_near in near.items():
        partners[first].append((second, _NEAR if is_near else -1))
        partners[second].append((first, _NEAR if is_near else -1))
    group = list(range(count))
    for _ in range(_PASSES):
        before = list(group)
        for node in range(count):
            votes: dict[int, int] = {}
            for partner, vote in partners[node]:
                votes[group[partner]] = votes.get(group[partner], 0) + vote
            best = max(votes, key=lambda each: (votes[each], -each), default=group[node])
            if votes.get(best, 0) > max(0, votes.get(group[node], 0)):
                group[node] = best
        _merge(group, near)
        if group == before:
            break
    return group


def _merge(group: list[int], near: Mapping[Pair, bool]) -> None:
    """Join pairs of groups whose nodes are mostly near to each other."""
    between: dict[Pair, int] = {}
    for (first, second), is_near in near.items():
        one, other = group[first], group[second]
        if one != other:
            both = (one, other) if one < other else (other, one)
            between[both] = between.get(both, 0) + (_NEAR if is_near else -1)
    into: dict[int, int] = {}
    for (one, other), votes in sorted(between.items(), key=lambda item: (-item[1], item[0])):
        if votes > 0 and not {one, other} & {*into, *into.values()}:
            into[other] = one
    group[:] = [into.get(each, each) for each in group]


def _stand_out(found: Sequence[int], distances: Mapping[Pair, float], threshold: float) -> bool:
    """Return whether groups are no play of noise: at least two, few errors, and a gap beyond the noise."""
    sizes = sorted(Counter(found).values(), reverse=True)
    # Nodes that are near to no other, and two of many, are rather slow ones than at a switch of their own.
    if len(sizes) < 2 or sizes[1] < max(2, min(3, sizes[0] - 1)) or sizes.count(1) > _ALONE * len(found):
        return False
    inside = [distance for (first, second), distance in distances.items() if found[first] == found[second]]
    between = [distance for (first, second), distance in distances.items() if found[first] != found[second]]
    if not inside or not between:
        # Where no pair of two groups has a value, nothing says that such pairs are slower.
        return False
    wrong_inside = sum(distance > threshold for distance in inside)
    wrong_between = sum(distance <= threshold for distance in between)
    if wrong_inside > _FAR_INSIDE * len(inside) or wrong_between > _NEAR_BETWEEN * len(between):
        return False
    low, high = statistics.median(inside), statistics.median(between)
    off = sorted([abs(each - low) for each in inside] + [abs(each - high) for each in between])
    # A median lies nearer to the few values that it was taken from than what is true.
    noise = max(_SIGMA * statistics.median(off[2:]) * (1 + _FEW / len(off)), _LEAST_NOISE)
    # That two or three pairs are nearer than others may be chance.
    sure = 3 if len(inside) < _ENOUGH else 1
    return high - low > sure * max(_CLEAR * noise, math.log(_LEAST_RATIO))
