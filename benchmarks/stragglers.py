#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plant faults in simulated clusters, count which stragglers are found; print one table, or the cost, as JSON.

A pair has the bandwidth of its slower node, times noise. Only the judgement is real here. Every row of a table begins
with the same seed.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ansible.module_utils

ansible.module_utils.__path__.append(str(Path(__file__).resolve().parent.parent / "module_utils"))
from ansible.module_utils.trainyard.verify import pairing, stragglers

HEALTHY = 24.0  # GB/s
MOST_ROUNDS = 8
SEED = 6
# This many nodes in all make a cell of a table, but no fewer clusters than the second number, no more than the third.
NODES, LEAST_CLUSTERS, MOST_CLUSTERS = 20_000, 5, 1_000


@dataclass(frozen=True)
class Fleet:
    """A cluster with planted faults: speed of the nodes that are not healthy, and which are silent or wrong.

    `noise` is the standard deviation of a measurement; a part `disturbed` of them is slowed to 40 to 95 % for once, a
    part `lost` never arrives; `drift` changes the speed of all from round to round. `load` is the mean part by which
    other work on the machines slows a measurement (exponential: mostly little, sometimes much).
    """

    size: int
    speed: dict[int, float] = field(default_factory=dict)
    silent: frozenset[int] = frozenset()
    wrong: frozenset[int] = frozenset()
    noise: float = 0.01
    disturbed: float = 0.01
    lost: float = 0.0
    drift: float = 0.0
    load: float = 0.0
    decimals: int = 6

    @property
    def bad(self) -> set[int]:
        """The nodes that should be named."""
        return set(self.speed) | self.silent | self.wrong

    def measure(self, rng: random.Random, pairs: pairing.Round, number: int) -> Iterable[dict[str, Any]]:
        """Yield the measurements of a round."""
        level = HEALTHY * (1 + rng.uniform(-self.drift, self.drift))
        for first, second in pairs:
            a, b = int(first), int(second)
            if rng.random() < self.lost:
                continue
            record: dict[str, Any] = {"hosts": [first, second], "round": number, "busbw": None, "wrong": 0, "error": ""}
            if a in self.silent or b in self.silent:
                yield {**record, "wrong": None, "error": "the partner did not come within 30 s"}
                continue
            value = level * min(self.speed.get(a, 1.0), self.speed.get(b, 1.0)) * max(0.0, rng.gauss(1.0, self.noise))
            if self.load:
                value /= 1 + rng.expovariate(1 / self.load)
            if rng.random() < self.disturbed:
                value *= rng.uniform(0.4, 0.95)
            yield {**record, "busbw": round(value, self.decimals), "wrong": 5 if {a, b} & self.wrong else 0}


@dataclass
class Outcome:
    """Result of the checks of a fleet: planted faults, and healthy nodes (`false_alarms`, `doubted`)."""

    planted: int = 0
    hits: int = 0
    misses: int = 0
    undecided: int = 0
    false_alarms: int = 0
    doubted: int = 0
    rounds: int = 0
    judged_s: float = 0.0
    measurements: int = 0
    judged: dict[str, Any] = field(default_factory=dict)


def blamed(
    fleet: Fleet, rng: random.Random, first: int = 2, full: bool = False, expected: float | None = None
) -> Outcome:
    """Measure and judge until nothing is left to be measured, as pair_check.yml does."""
    hosts = [str(at) for at in range(fleet.size)]
    schedule = pairing.full_rounds(hosts) if full else pairing.first_rounds(hosts, first)
    # A larger budget at the start also allows more retests.
    most = max(MOST_ROUNDS, len(schedule) + 3)
    measured: list[dict[str, Any]] = []
    outcome = Outcome(planted=len(fleet.bad))
    while schedule:
        for pairs in schedule:
            measured += fleet.measure(rng, pairs, outcome.rounds)
            outcome.rounds += 1
        began = time.perf_counter()
        outcome.judged = stragglers.verify(hosts, measured, expected=expected)
        outcome.judged_s = max(outcome.judged_s, time.perf_counter() - began)
        schedule = [outcome.judged["retest"]] if outcome.judged["retest"] and outcome.rounds < most else []
    outcome.measurements = len(measured)
    for at, node in enumerate(outcome.judged["nodes"]):
        planted, state = at in fleet.bad, node["state"]
        outcome.hits += planted and state == "fail"
        outcome.misses += planted and state == "pass"
        outcome.undecided += planted and state == "unknown"
        outcome.false_alarms += not planted and state == "fail"
        outcome.doubted += not planted and state == "unknown"
    return outcome


Make = Callable[[random.Random, int], Fleet]


def some(rng: random.Random, size: int, part: float, speed: float) -> dict[int, float]:
    """Choose a part of the nodes, at least one, and slow them down."""
    return dict.fromkeys(rng.sample(range(size), max(1, round(size * part))), speed)


def slow(part: float, speed: float, **more: Any) -> Make:
    """Return a maker of fleets in which a part of the nodes is slow; part 0 is one node."""
    return lambda rng, size: Fleet(size, some(rng, size, part, speed), **more)


def row_of_neighbours(rng: random.Random, size: int) -> Fleet:
    """Return a fleet in which an eighth of the nodes, in a row, is slow: a rack or a leaf switch."""
    first = rng.randrange(size)
    return Fleet(size, {(first + at) % size: 0.6 for at in range(max(1, size // 8))})


def every(size: int, number: int, places: set[int]) -> Fleet:
    """Return a fleet in which the same places of every few nodes are slow: slots of a chassis."""
    return Fleet(size, {at: 0.6 for at in range(size) if at % number in places})


FAULTS: dict[str, tuple[Make, dict[str, Any]]] = {
    "none": (lambda _, size: Fleet(size), {}),
    "one node at 50 %": (slow(0, 0.5), {}),
    "one node at 80 %": (slow(0, 0.8), {}),
    "one node at 90 %": (slow(0, 0.9), {}),
    "1 % of the nodes at 70 %": (slow(0.01, 0.7), {}),
    "10 % of the nodes at 70 %": (slow(0.1, 0.7), {}),
    "a third of the nodes at 60 %": (slow(1 / 3, 0.6), {}),
    "half of the nodes at 60 %": (slow(0.5, 0.6), {}),
    "an eighth, neighbours, at 60 %": (row_of_neighbours, {}),
    "every second node at 60 %": (lambda _, size: every(size, 2, {1}), {}),
    "first and last of every four at 60 %": (lambda _, size: every(size, 4, {0, 3}), {}),
    "the same, 3 rounds": (lambda _, size: every(size, 4, {0, 3}), {"first": 3}),
    "one silent node": (lambda rng, size: Fleet(size, silent=frozenset(some(rng, size, 0, 0))), {}),
    "10 % silent nodes": (lambda rng, size: Fleet(size, silent=frozenset(some(rng, size, 0.1, 0))), {}),
    "one node with wrong results": (lambda rng, size: Fleet(size, wrong=frozenset(some(rng, size, 0, 0))), {}),
    "one at 70 %, 5 % of measurements lost": (slow(0, 0.7, lost=0.05), {}),
    "one at 70 %, rounds differ by up to 5 %": (slow(0, 0.7, drift=0.05), {}),
    "one at 50 %, other load takes 10 %": (slow(0, 0.5, load=0.1), {}),
    "one at 70 %, no noise (MAD = 0)": (slow(0, 0.7, noise=0.0, disturbed=0.0, decimals=2), {}),
}
FAULT_SIZES = (3, 4, 5, 8, 16, 64, 256, 1024, 4096)
NOISES = (0.0, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2)
SPEEDS = (0.5, 0.6, 0.7, 0.8, 0.9)
NOISE_SIZES = (4, 8, 64, 1024)


def cell(make: Make, size: int, **how: Any) -> dict[str, Any]:
    """Judge many fleets of one kind and size, and add up."""
    rng = random.Random(SEED)  # noqa: S311 - nothing is secret here
    clusters = min(MOST_CLUSTERS, max(LEAST_CLUSTERS, NODES // size))
    outcomes = [blamed(make(rng, size), rng, **how) for _ in range(clusters)]
    rounds = [outcome.rounds for outcome in outcomes]
    counted = ("planted", "hits", "misses", "undecided", "false_alarms", "doubted")
    return {
        "nodes": size,
        "clusters": clusters,
        **{name: sum(getattr(outcome, name) for outcome in outcomes) for name in counted},
        "rounds_median": statistics.median(rounds),
        "rounds_most": max(rounds),
        "judge_s_most": round(max(outcome.judged_s for outcome in outcomes), 4),
    }


def faults() -> list[dict[str, Any]]:
    """Return a cell for each kind of fault and each size."""
    return [
        {"row": name, "column": f"{size} nodes", **cell(make, size, **how)}
        for name, (make, how) in FAULTS.items()
        for size in FAULT_SIZES
    ]


def noise() -> list[dict[str, Any]]:
    """Return a cell for each noise and speed, of four sizes: one slow node; without disturbances."""
    return [
        {"row": f"{size} nodes, noise {noise:.1%}", "column": f"{speed:.0%}", **cell(make, size)}
        for size in NOISE_SIZES
        for noise in NOISES
        for speed, make in ((speed, slow(0, speed, noise=noise, disturbed=0.0)) for speed in SPEEDS)
    ]


def confidence() -> list[dict[str, Any]]:
    """Return, for what nodes were said to be with some confidence, how often that was true: 64 nodes, 10 % bad."""
    rng = random.Random(SEED)  # noqa: S311 - nothing is secret here
    said: dict[tuple[str, float], list[bool]] = {}
    for _ in range(400):
        level = rng.choice(NOISES)
        bad = {at: rng.uniform(0.5, 0.92) for at in rng.sample(range(64), 6)}
        fleet = Fleet(64, bad, noise=level, disturbed=0.02)
        for at, node in enumerate(blamed(fleet, rng).judged["nodes"]):
            if node["state"] != "unknown":
                low = next(edge for edge in (0.99, 0.95, 0.9, 0.8, 0.0) if node["confidence"] >= edge)
                said.setdefault((node["state"], low), []).append((at in bad) == (node["state"] == "fail"))
    return [
        {"state": state, "confidence_from": low, "nodes": len(right), "right": sum(right)}
        for (state, low), right in sorted(said.items(), reverse=True)
    ]


def cost(size: int, full: bool) -> dict[str, Any]:
    """Return what it takes to judge a cluster of that size with 1 % slow nodes; memory is this process's peak."""
    rng = random.Random(SEED)  # noqa: S311 - nothing is secret here
    outcome = blamed(slow(0.01, 0.7)(rng, size), rng, full=full)
    return {
        "nodes": size,
        "rounds": outcome.rounds,
        "measurements": outcome.measurements,
        "seconds": round(outcome.judged_s, 3),
        "peak MiB": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    }


TABLES: dict[str, Callable[[], Iterable[dict[str, Any]]]] = {"faults": faults, "noise": noise, "confidence": confidence}


def main() -> None:
    """Print one table, or the cost of one cluster."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=[*TABLES, "cost"])
    parser.add_argument("--nodes", type=int, default=4096, help="of the cluster whose cost is measured")
    parser.add_argument("--full", action="store_true", help="every pair of it")
    options = parser.parse_args()
    print(json.dumps(cost(options.nodes, options.full) if options.what == "cost" else list(TABLES[options.what]())))


if __name__ == "__main__":
    main()
