# SPDX-License-Identifier: Apache-2.0
"""Stragglers: which nodes are slow, silent or wrong, checked from what pairs of nodes measured.

A pair is as fast as the slower of its two nodes. So a node with one fast pair is cleared; a slow pair speaks against
the node whose partner is cleared, and says nothing about either where neither is. Suspects are measured again with
cleared partners. docs/stragglers.md has the method, thresholds and limits; benchmarks/stragglers.py measures it.

Bandwidths are GB/s of 1e9 bytes. `relative` is a bandwidth as a part of what healthy pairs of the same round had.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..base.checks import worst
from ..base.findings import counted, grouped
from .pairing import Pair, Round, with_partners
from .straggler_limits import Limits
from .straggler_text import ALONE, compare_cards, leave_out, measure_again, ping, reason

# A node that this many measurements have not decided is at the gate, or comes and goes: more of them decide nothing.
MAX_MEASUREMENTS = 6
# A first estimate of what is healthy: nodes whose best pair is this near to the fast ones show how fast healthy is.
_NEARLY = 0.85
# The standard deviation of a normal distribution in median absolute deviations.
SIGMA = 1.4826
# From this many pairs of healthy nodes they make a round its own yardstick; fewer say less than all rounds together.
_OWN_YARDSTICK = 8
# No network is quieter: with fewer decimals, or few measurements, the spread that is found may be 0.
_MIN_NOISE = 0.01
# How often a healthy pair may be slow for once (another job, a lost packet): what confidence owes to repetition.
_DISTURBED = 0.05
# A slow node is named from this confidence on, and from two measurements on.
_SURE = 0.95
# A part of the healthy bandwidth that no other load explains.
_FAR = 0.25
# A pass that is less sure than this is measured once more.
_FAIRLY_SURE = 0.8


@dataclass
class _Sample:
    """A measurement by the places of its hosts; value in GB/s of a pair at one switch, 0 where there was an error."""

    first: int
    second: int
    round: int
    value: float
    wrong: bool
    error: str
    record: Mapping[str, Any]
    relative: float = 0.0

    def other(self, host: int) -> int:
        return self.second if host == self.first else self.first


@dataclass
class _Node:
    """The state of a node; `values` are its relative bandwidths with cleared partners, one for each of these.

    `counted` is the number of measurements behind them: a slow way to one partner, measured often, is one value.
    """

    samples: list[_Sample] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    counted: int = 0
    state: str = "unknown"
    confidence: float = 0.0
    reason: str = ""
    action: str = ""
    again: bool = False

    @property
    def score(self) -> float | None:
        return statistics.median(self.values) if self.values else None


def verify(
    hosts: Sequence[str],
    measurements: Sequence[Mapping[str, Any]],
    *,
    expected: float | None = None,
    limits: Limits | None = None,
    inventory: str = "",
) -> dict[str, Any]:
    """Return the result: state, reason, median, gate, spread, nodes, suspects, retest, pairs, paths.

    A measurement is `{hosts: [a, b], round: int, busbw: GB/s or None, wrong: int or None, error: str}`; several of the
    same pair in the same round (both nodes report an error) count once. `usual` in it is the part of the bandwidth at
    one switch that pairs of its two switches reach (pair_groups.with_usual). `expected` is what a pair of healthy nodes
    should reach, `inventory` the options of the commands in actions. `retest` is the round to measure next, [] when
    everything is decided; call again with the measurements of all rounds. Raises ValueError for a host that is not in
    `hosts`.
    """
    limits = limits or Limits()
    samples = _read(hosts, measurements)
    nodes = [_Node() for _ in hosts]
    for sample in samples:
        nodes[sample.first].samples.append(sample)
        nodes[sample.second].samples.append(sample)
    median, noise = _yardstick(nodes, samples, limits)
    tolerance = min(max(limits.tolerance, limits.spread * noise), limits.most_tolerance)
    gate = 1 - tolerance
    good = _collect_values(nodes, samples, gate)
    for host, node in enumerate(nodes):
        _check_speed(node, hosts[host], gate, max(noise, _MIN_NOISE), limits, inventory)
    unexplained = _check_results(hosts, nodes, samples, limits, inventory)
    alone = len(hosts) == 2 and median > 0 and not any(sample.wrong for sample in samples)
    short = median > 0 and expected is not None and median < limits.fraction * expected
    if alone:
        _check_two(nodes, short, expected)
    paths, doubted = _slow_paths(hosts, nodes, samples, gate, limits)
    # Without a single pair that works, no node can be compared with another.
    works = any(sample.value > 0 and not sample.wrong for sample in samples)
    retest = [] if alone or not works else _retest(hosts, nodes, good, samples, doubted)

    failed = [hosts[at] for at, node in enumerate(nodes) if node.state == "fail"]
    # Where no pair works at all, none of many is more suspect than another.
    suspect = {"unknown", "fail"} if works or len(hosts) == 2 or not samples else {"fail"}
    suspects = [hosts[at] for at, node in enumerate(nodes) if node.state in suspect and (node.samples or node.again)]
    states = [node.state for node in nodes]
    if failed or unexplained or paths or short or (samples and not median):
        states.append("fail")
    if doubted:
        states.append("unknown")
    stragglers: dict[str, Any] = {
        "state": worst(states) if samples else "unknown",
        "reason": "",
        "median": round(median, 6) if median else None,
        "gate": round(median * gate, 6) if median else None,
        "spread": round(noise, 4),
        "expected": expected,
        "nodes": [
            {
                "host": host,
                "state": node.state,
                "score": None if node.score is None else round(node.score, 4),
                "confidence": round(node.confidence, 3),
                "measurements": len(node.samples),
                "reason": node.reason,
                "action": node.action,
            }
            for host, node in zip(hosts, nodes)
        ],
        "suspects": suspects,
        "retest": retest,
        "pairs": [_pair(hosts, sample, gate) for sample in samples],
        "paths": paths,
    }
    stragglers["reason"] = reason(hosts, stragglers, failed, unexplained, doubted, limits)
    return stragglers


def _read(hosts: Sequence[str], measurements: Sequence[Mapping[str, Any]]) -> list[_Sample]:
    """Read the measurements in the order of rounds and pairs, each pair of a round once."""
    place = {host: at for at, host in enumerate(hosts)}
    if len(place) != len(hosts):
        raise ValueError("a host is named twice; expected: each host once")
    found: dict[tuple[int, int, int], _Sample] = {}
    for record in measurements:
        names = list(record["hosts"])
        unknown = [name for name in names if name not in place]
        if unknown or len(set(names)) != 2:
            raise ValueError(f"a measurement of {names}; expected: two of the {len(hosts)} hosts that are checked")
        first, second = sorted(place[name] for name in names)
        value, error = record.get("busbw"), str(record.get("error") or "")
        if not error and (value is None or not math.isfinite(value) or value < 0):
            error = f"no bandwidth, found {value!r}"
        wrong = not error and bool(record.get("wrong"))
        key = (int(record.get("round", 0)), first, second)
        reached = 0.0 if error else float(value or 0) / record.get("usual", 1.0)
        sample = _Sample(first, second, key[0], reached, wrong, error, record)
        # If two reports on one measurement differ, the one with the error stands.
        if key not in found or (error and not found[key].error):
            found[key] = sample
    return [found[key] for key in sorted(found)]


def _yardstick(nodes: Sequence[_Node], samples: Sequence[_Sample], limits: Limits) -> tuple[float, float]:
    """Set every sample's `relative`; return the median of healthy pairs (GB/s, 0: none) and their relative spread.

    Nothing is faster than healthy, so the fast nodes show what healthy is, though most may be slow: the upper quartile
    of the nodes' best pairs, and what is near to it.
    """
    # A node with wrong results may be fast; where all results are wrong, there is nothing else to compare.
    right = any(sample.value > 0 and not sample.wrong for sample in samples)
    best = [max((each.value for each in node.samples if not (right and each.wrong)), default=0.0) for node in nodes]
    ranked = sorted(value for value in best if value > 0)
    if not ranked:
        return 0.0, 0.0
    rough = ranked[math.ceil(0.75 * len(ranked)) - 1]
    level, scatter = _center([value for value in ranked if value >= _NEARLY * rough])
    near = [value >= level * (1 - max(limits.tolerance, limits.spread * scatter)) for value in best]
    healthy = [sample for sample in samples if near[sample.first] and near[sample.second] and not sample.error]
    median = statistics.median([sample.value for sample in healthy if sample.value >= _NEARLY * rough])
    by_round = grouped((sample.round, sample.value) for sample in healthy)
    own = {at: statistics.median(values) for at, values in by_round.items() if len(values) >= _OWN_YARDSTICK}
    for sample in samples:
        sample.relative = sample.value / own.get(sample.round, median)
    # A few pairs of healthy nodes may agree by chance. A slow node's pairs scatter alike, around their own middle.
    off, fitted = [abs(sample.relative - 1) for sample in healthy], 1
    for host, node in enumerate(nodes):
        values = [sample.relative for sample in node.samples if near[sample.other(host)] and not sample.error]
        if not near[host] and len(values) > 1:
            middle = statistics.median(values)
            off += [abs(value - middle) for value in values]
            fitted += 1
    # A middle that was taken from the values is nearer to one of them than what is true; and what few values say of
    # their spread is uncertain, as with Student's t.
    off = sorted(off)[fitted:]
    if not off:
        return median, 0.0
    # Slow ways between healthy nodes are few: the median does not see them.
    return median, SIGMA * statistics.median(off) * (1 + 4 / len(off))


def _center(values: Sequence[float]) -> tuple[float, float]:
    """Return the median, and the relative standard deviation by the median distance from it."""
    middle = statistics.median(values)
    return middle, SIGMA * statistics.median([abs(value - middle) for value in values]) / middle


def _collect_values(nodes: Sequence[_Node], samples: Sequence[_Sample], gate: float) -> set[int]:
    """Give each node its values with cleared partners; return the nodes that are cleared.

    A node is cleared by one fast pair. Among the cleared the one with the lowest score is given up first, as long as
    that is below the gate: luck may have cleared it, and then its slow pairs speak against their other nodes no longer.
    """
    good = {host for sample in samples if sample.relative >= gate for host in (sample.first, sample.second)}
    low: dict[int, float] = {}

    def collect(host: int) -> None:
        by_partner = grouped(
            (sample.other(host), sample.relative)
            for sample in nodes[host].samples
            if sample.relative >= gate or sample.other(host) in good
        )
        # The better one of two measurements of a pair: one that is slow only once was disturbed.
        nodes[host].values = [statistics.median_high(values) for values in by_partner.values()]
        nodes[host].counted = sum(map(len, by_partner.values()))
        score = nodes[host].score
        low.pop(host, None)
        if host in good and score is not None and score < gate:
            low[host] = score

    for host in range(len(nodes)):
        collect(host)
    while low:
        lowest = min(low, key=lambda host: (low[host], host))
        good.discard(lowest)
        del low[lowest]
        # Only the scores of nodes with a slow pair fall, so only those in question are collected again.
        for partner in {sample.other(lowest) for sample in nodes[lowest].samples} & set(low):
            collect(partner)
    for host in range(len(nodes)):
        collect(host)
    return good


def _below(distance: float) -> float:
    """Return the normal probability of a value below this many standard errors."""
    return 0.5 * (1 + math.erf(distance / math.sqrt(2)))


def _check_speed(node: _Node, host: str, gate: float, noise: float, limits: Limits, inventory: str) -> None:
    """Set a node's state by its values, and whether it is to be measured again."""
    tried = len(node.samples)
    more = tried < MAX_MEASUREMENTS
    node.again = more
    count, score = node.counted, node.score
    errors = [sample.error for sample in node.samples if sample.error]
    if score is None:
        node.reason = "it was only measured with suspects" if tried else "it was not measured"
        if errors and len(errors) == tried:
            node.reason = f"no pair with it could be measured: {errors[-1]}"
        node.action = measure_again(host, inventory)
        return
    # The standard error of a median; of one or two values it is the mean's.
    error = noise * (1.2533 if count > 2 else 1.0) / math.sqrt(count)
    # Noise is a part of what is measured: what has a tenth of the bandwidth scatters by a tenth as much. Nearer to the
    # gate that is not relied on: other load may take half of a bandwidth.
    if score < _FAR:
        error *= max(score, _MIN_NOISE)
    slow = sum(value < gate for value in node.values)
    partners = counted(len(node.values), "healthy partner")
    fast = len(node.values) - slow
    if score < gate:
        node.confidence = _below((gate - score) / error) * (1 - _DISTURBED**slow)
        # A node that is slow with one partner and fast with another is not slow: two partners more must say so.
        clear = slow >= fast + 2 and node.confidence >= _SURE
        node.state = "fail" if clear else "unknown"
        node.again = more and not (clear and count >= limits.confirm)
        if errors and score == 0:
            node.reason = _errors_text(node)
            node.action = f"see whether it runs and answers on the job's network: {ping(host, inventory)}"
        else:
            node.reason = f"{score:.0%} of the healthy bandwidth with {partners}"
            node.action = compare_cards(host, inventory)
    else:
        node.confidence = _below((score - gate) / error) * (1 - _DISTURBED ** max(fast, 1))
        settled = (not slow or count >= limits.confirm) and node.confidence >= _FAIRLY_SURE
        node.state = "pass" if settled or not (more or slow) else "unknown"
        node.again = more and not settled
        if slow:
            node.reason = f"slow with {slow} of {partners}"
    if node.state == "unknown":
        node.reason = f"{score:.0%} of the healthy bandwidth, slow with {slow} of {partners}"
        if errors:
            # A pair that did not meet counts as 0: its share of the bandwidth was not measured.
            node.reason = _errors_text(node)
        node.action = measure_again(host, inventory)


def _errors_text(node: _Node) -> str:
    errors = [sample.error for sample in node.samples if sample.error]
    return f"{len(errors)} of {counted(len(node.samples), 'measurement')} failed: {errors[-1]}"


def _check_results(
    hosts: Sequence[str], nodes: Sequence[_Node], samples: Sequence[_Sample], limits: Limits, inventory: str
) -> list[Pair]:
    """Blame wrong results on nodes; return the pairs whose faulty node is unknown.

    Bandwidth cannot clear a node of these. The node with most wrong pairs explains them, if two of its partners at
    least were right with others: where all is wrong, no single node is.
    """
    wrong = [sample for sample in samples if sample.wrong]
    trusted = {at for sample in samples if not (sample.wrong or sample.error) for at in (sample.first, sample.second)}
    while wrong:
        met = grouped((at, sample.other(at)) for sample in wrong for at in (sample.first, sample.second))
        witnesses = {host: len(trusted.intersection(partners)) for host, partners in met.items()}
        # If two have as many, the one with fewer correct results.
        culprit = max(met, key=lambda host: (witnesses[host], len(met[host]), -len(nodes[host].samples), -host))
        if witnesses[culprit] < 2:
            break
        node, count = nodes[culprit], len(met[culprit])
        node.state, node.confidence = "fail", 1 - 0.5**count
        node.reason = f"wrong results in {count} of {counted(len(node.samples), 'measurement')}"
        node.action = leave_out(hosts[culprit], inventory)
        node.again = count < limits.confirm and len(node.samples) < MAX_MEASUREMENTS
        wrong = [sample for sample in wrong if culprit not in (sample.first, sample.second)]
    for sample in wrong:
        for at in (sample.first, sample.second):
            node = nodes[at]
            if node.state != "fail":
                node.state, node.confidence = "unknown", 0.5
                node.reason = f"a wrong result with {hosts[sample.other(at)]}: one of the two"
                node.action = measure_again(hosts[at], inventory)
            node.again = len(node.samples) < MAX_MEASUREMENTS
    return sorted({(hosts[sample.first], hosts[sample.second]) for sample in wrong})


def _check_two(nodes: Sequence[_Node], short: bool, expected: float | None) -> None:
    """Check the only pair of a cluster of two by what is expected, as there is nothing to compare it with.

    Without an expected value its bandwidth cannot be checked, whatever it scatters; a measurement that failed can.
    """
    for node in nodes:
        node.again = False
        if any(sample.error for sample in node.samples):
            node.state, node.reason = "unknown", _errors_text(node)
        elif expected is None:
            node.state, node.confidence = "skipped", 0.0
            node.reason = ALONE
            node.action = "give what a healthy pair reaches in GB/s (pair_busbw)"
        elif short:
            node.state, node.confidence = "unknown", 0.5
            node.reason, node.action = "one of the two is slow, or the way between them", ""
        else:
            node.state, node.reason, node.action = "pass", "", ""


def _slow_paths(
    hosts: Sequence[str], nodes: Sequence[_Node], samples: Sequence[_Sample], gate: float, limits: Limits
) -> tuple[list[dict[str, Any]], list[tuple[int, int]]]:
    """Return pairs that stay slow though both nodes are healthy, and pairs to be repeated.

    Each node of these pairs was fast elsewhere. Most often the cause passes, so they are repeated first.
    """
    met = grouped(((sample.first, sample.second), sample.relative) for sample in samples)
    paths, doubted = [], []
    for (first, second), values in sorted(met.items()):
        ends = (nodes[first], nodes[second])
        if max(values) >= gate or any(node.state == "fail" or max(node.values, default=0.0) < gate for node in ends):
            continue
        healthy = all(node.state == "pass" for node in ends)
        if len(values) == 1 or (healthy and len(values) < limits.confirm):
            doubted.append((first, second))
        elif healthy:
            share = round(statistics.median(values), 4)
            paths.append({"hosts": [hosts[first], hosts[second]], "relative": share, "measurements": len(values)})
    return paths, doubted


def _retest(
    hosts: Sequence[str],
    nodes: Sequence[_Node],
    good: set[int],
    samples: Sequence[_Sample],
    doubted: Sequence[tuple[int, int]],
) -> Round:
    """Return the next round: undecided nodes with healthy partners, and some pairs of these as a yardstick."""
    # Worst first: where partners are few, merely doubted nodes wait.
    again = [host for host, node in enumerate(nodes) if node.again]
    again.sort(key=lambda host: (host in good, nodes[host].score or 0.0))
    partners = [host for host, node in enumerate(nodes) if node.state == "pass" and not node.again]
    # Without nodes beyond doubt, the best of the cleared ones are partners.
    partners += [host for host in reversed(again) if host in good and nodes[host].state != "fail"]
    met = {(sample.first, sample.second) for sample in samples}
    return with_partners(hosts, again, partners, met, doubted, controls=max(_OWN_YARDSTICK, len(again)))


def _pair(hosts: Sequence[str], sample: _Sample, gate: float) -> dict[str, Any]:
    """Return the record of a measurement, with `state` and `relative`."""
    healthy = sample.relative >= gate and not sample.wrong and not sample.error
    return {
        "hosts": [hosts[sample.first], hosts[sample.second]],
        "round": sample.round,
        "busbw": None if sample.error else sample.record["busbw"],
        "wrong": sample.record.get("wrong"),
        "error": sample.error,
        "relative": None if sample.error else round(sample.relative, 4),
        "state": "pass" if healthy else "fail",
    }
