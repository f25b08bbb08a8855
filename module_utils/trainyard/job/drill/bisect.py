# SPDX-License-Identifier: Apache-2.0
"""Decide on which nodes a failing job runs next until the faulty ones are named, from the runs so far.

A run that passes clears its nodes. One that fails has a fault among those that are not cleared, its suspects: these
run again in two halves, at the same time, with cleared nodes where a half alone would be too small. Where the job
passes on all nodes, speeds are compared instead: a run is slow against the median of others of its size.

A wrong name is worse than none. A node is named if two runs or more fail that have no other node in common, all their
other nodes are cleared, and a run that is no larger than these passes. A launch that could not start says nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

PASSED, CRASHED, HUNG, NOT_A_NUMBER, SLOW = "passes", "crashes", "hangs", "has no loss that is a number", "is slow"
NOTHING = "could not run"
# Failures of the launch, or of what surrounds the job.
_NOT_OF_THE_JOB = ("not_started", "engine", "excluded", "held", "cannot_write", "folder_gone", "apart")
# A run is slow if it makes less than this part of the steps of others in the same time.
SLOW_PART = 0.8
# A loss that has not been a number for so many steps stays so: the rest of the run is not waited for.
LOST_STEPS = 10
# How often the same nodes run at most, and how many runs there are at the same time.
ATTEMPTS, SIDE_BY_SIDE = 3, 16
# How a search ends: nodes are named, two fail only together, so many are needed at once, every part fails, all parts
# are alike, the same nodes fail and pass, or it cannot go on.
NAMED, PAIR, TOGETHER, EVERYWHERE = "named", "pair", "together", "everywhere"
ALIKE, NOT_REPEATED, UNKNOWN = "alike", "not_repeated", "unknown"

Hosts = frozenset[str]


class Run(NamedTuple):
    """A run on some of the nodes, how it ended, and its steps per second."""

    hosts: Hosts
    outcome: str
    rate: float | None = None


class Decision(NamedTuple):
    """The next runs, side by side; or how the search ends, with the hosts that this is about.

    `unclear` hosts failed in one run and passed in another of the same nodes.
    """

    runs: Sequence[Sequence[str]] = ()
    end: str = ""
    hosts: Sequence[str] = ()
    unclear: Sequence[str] = ()


def is_lost(state: Mapping[str, Any]) -> bool:
    """Return whether the outcome of a run is known by its loss (cluster.json or summary.json), whatever follows."""
    lost = state.get("loss_not_a_number") or {}
    since, last = ((lost.get(name) or {}).get("step") for name in ("since", "last"))
    return since is not None and last is not None and bool(last - since >= LOST_STEPS)


def outcome(summary: Mapping[str, Any] | None, points: Sequence[Mapping[str, float]]) -> tuple[str, float | None]:
    """Return how a run ended (summary.json), and its steps per second without its first quarter."""
    found = summary or {}
    state, kind = found.get("state"), (found.get("failure") or {}).get("kind")
    steps = [(point["elapsed_s"], point["step"]) for point in points if "step" in point and "elapsed_s" in point]
    first, last = (steps[len(steps) // 4], steps[-1]) if steps else ((0.0, 0.0), (0.0, 0.0))
    rate = (last[1] - first[1]) / (last[0] - first[0]) if last[0] > first[0] and last[1] > first[1] else None
    ended = state in ("succeeded", "failed", "timed_out") or (state == "stopped" and is_lost(found))
    if not ended or kind in _NOT_OF_THE_JOB:
        return NOTHING, None
    if kind == "not_a_number" or (found.get("loss_not_a_number") or {}).get("since"):
        return NOT_A_NUMBER, rate
    return HUNG if kind in ("hung", "timed_out") else CRASHED if state == "failed" else PASSED, rate


def decide(hosts: Sequence[str], runs: Sequence[Run], least: int = 1, multiple: int = 1) -> Decision:
    """Return what follows from the runs. The job needs `least` nodes, in a `multiple`; `hosts` are all of them."""
    search = _Search(hosts, runs, least, multiple)
    found = search.next()
    return search.end(NOT_REPEATED) if any(search.count(each) >= ATTEMPTS for each in found.runs) else found


class _Search:
    """What follows from the runs, as far as these have at least `least` nodes."""

    def __init__(self, hosts: Sequence[str], runs: Sequence[Run], least: int, multiple: int) -> None:
        self._hosts, self._all, self._least, self._multiple = list(hosts), frozenset(hosts), least, multiple
        self._runs, self._known = runs, [run for run in runs if run.outcome != NOTHING]
        whole = [run.outcome for run in self._known if run.hosts == self._all]
        self._begun, self._by_speed = bool(whole), whole[:1] == [PASSED]
        if self._by_speed:
            self._begun = any(run.rate for run in self._known if run.hosts == self._all)
            self._known = [run for run in self._known if run.outcome == PASSED and run.rate]
            bad, good = _by_speed(self._known, self._all)
        else:
            bad = [run.hosts for run in self._known if run.outcome != PASSED]
            good = [run.hosts for run in self._known if run.outcome == PASSED]
        both = set(bad) & set(good)
        self._bad, self._good = (
            [each for each in some if each not in both and (len(each) >= least or each == self._all)]
            for some in (bad, good)
        )
        self._cleared = frozenset().union(*self._good)
        self._unclear = frozenset().union(*(both - {self._all})) - self._cleared
        # The failing runs of each host that is the only suspect of these.
        self._own: dict[str, list[Hosts]] = {}
        for each in self._bad:
            suspects = each - self._cleared
            if len(suspects) == 1 and not suspects & self._unclear:
                self._own.setdefault(next(iter(suspects)), []).append(each)
        smallest = min(map(len, self._good), default=len(hosts) + 1)
        self._named = [
            host
            for host in self._in_order(self._own)
            if len(self._own[host]) > 1
            and frozenset.intersection(*self._own[host]) == {host}
            and smallest <= min(map(len, self._own[host]))
        ]

    def next(self) -> Decision:
        """Return the next runs, or the end."""
        for run in self._runs:
            if self.count(run.hosts) >= ATTEMPTS and not self._has(run.hosts):
                return self.end(UNKNOWN, run.hosts)
        if not self._begun:
            return self.end(UNKNOWN, self._all) if self._by_speed else Decision([self._hosts])
        if self._by_speed and not self._bad:
            return self._compare_sizes()
        unexplained = [each for each in self._bad if each <= self._cleared]
        if unexplained and not self._named:
            return self._explain(min(unexplained, key=lambda each: (len(each), self._in_order(each))))
        wanted = self._wanted()
        planned = self._side_by_side(wanted)
        if planned:
            return Decision(planned)
        if wanted:
            return self._without_some()
        return self._finish() if self._named else self.end(NOT_REPEATED if self._good else EVERYWHERE)

    def _wanted(self) -> list[tuple[Hosts, int, Hosts]]:
        """Return the wanted runs: nodes that take part, the size, and nodes that do not complete it."""
        found: list[tuple[Hosts, int, Hosts]] = []
        suspects = {each - self._cleared - self._unclear for each in self._bad if not each & set(self._own)} - {Hosts()}
        suspects = {each for each in suspects if not any(other < each for other in suspects)}
        for each in sorted(suspects, key=self._in_order):
            names, half = self._in_order(each), (len(each) + 1) // 2
            size = self._size(half)
            if size - len(names) + half <= len(self._cleared):
                found += [(frozenset(part), size, Hosts()) for part in (names[:half], names[half:])]
            else:
                parts = [names[:size], names[size:]] if size < len(names) else [[]]
                found += [(frozenset(part), self._size(len(part)), Hosts()) for part in parts]
        rest = self._all - self._cleared - self._unclear - set(self._own) - frozenset().union(*suspects)
        if rest:
            found.append((rest, self._size(len(rest)), Hosts()))
        for host, own in self._own.items():
            if host not in self._named:
                found.append((frozenset([host]), self._size(1), frozenset.intersection(*own) - {host}))
        # Cleared nodes alone, which show that so few can pass, and how fast.
        if self._own and not self._named:
            found.append((Hosts(), self._size(1), Hosts()))
        return found + [(Hosts(), found[0][1], Hosts())] * 2 if self._by_speed and found else found

    def _side_by_side(self, wanted: Iterable[tuple[Hosts, int, Hosts]]) -> list[list[str]]:
        """Return runs without a common node; cleared nodes complete those that are too small."""
        busy: set[str] = set()
        found: list[list[str]] = []
        for core, size, without in wanted:
            free = [host for host in self._hosts if host in self._cleared - core - busy - without]
            missing = size - len(core)
            chosen = core | set(free[: max(missing, 0)])
            fits = 0 <= missing <= len(free) and not core & busy and len(found) < SIDE_BY_SIDE
            # By speed, cleared nodes run beside suspects only.
            helps = bool(core) or (not self._has(chosen) and (bool(found) or not self._by_speed))
            if chosen and fits and helps and self.count(chosen) < ATTEMPTS:
                busy |= chosen
                found.append(self._in_order(chosen))
        return found

    def _without_some(self) -> Decision:
        """Leave out some nodes after the other, where the rest is too small to complete a run."""
        many = self._size(1)
        left_out = len(self._hosts) - many
        for first in range(0, len(self._hosts), left_out) if left_out and (self._good or many > 1) else ():
            first = min(first, many)
            chosen = [*self._hosts[:first], *self._hosts[first + left_out :]]
            if not self._has(chosen):
                return Decision([chosen])
        return self.end(UNKNOWN if self._good else EVERYWHERE)

    def _explain(self, failing: Hosts) -> Decision:
        """Go on where a run fails, and all its nodes passed in others."""
        larger = any(failing < each for each in self._good)
        if (self.count(failing) if larger else sum(failing <= each for each in self._bad)) < 2:
            return Decision([self._in_order(failing)])
        if larger:
            # So few nodes always fail: what they say does not count.
            return _Search(self._hosts, self._runs, self._size(len(failing) + 1), self._multiple).next()
        if self._by_speed or self._least > 2 or self._multiple > 1:
            return self.end(TOGETHER, failing)
        return self._find_pair(self._in_order(failing))

    def _find_pair(self, names: list[str]) -> Decision:
        """Find the last node of the shortest failing beginning, and with it in front the other one."""
        for first in range(2):
            low, high = first, len(names)
            while high - low > 1:
                part = frozenset(names[: (low + high) // 2])
                if any(each <= part for each in self._bad):
                    high = len(part)
                elif any(part <= each for each in self._good) or len(part) < self._least:
                    low = len(part)
                else:
                    return Decision([self._in_order(part)])
            names = [names[high - 1], *names[: high - 1]]
        pair = frozenset(names[:2])
        others = [host for host in self._hosts if host not in pair]
        partners = [frozenset(each) for each in zip(names[:2], 2 * others)]
        if pair in self._good or any(each in self._bad for each in partners):
            return self.end(TOGETHER, names[:high])
        for wanted in ([pair] * (self.count(pair) < 2), [each for each in partners if each not in self._good]):
            if wanted:
                return Decision([self._in_order(each) for each in wanted[: len(others)]])
        return self.end(PAIR, pair)

    def _compare_sizes(self) -> Decision:
        """Compare parts of one size that becomes smaller and smaller, as long as their speeds are alike."""
        size, least = len(self._hosts), self._size(1)
        while size > least:
            size = max(size // 2 // self._multiple * self._multiple, least)
            groups: list[list[str]] = []
            for first in range(0, len(self._hosts), size):
                # The last part takes nodes of the first one, too, so that it has the size of the others.
                group = [*self._hosts[first:], *self._hosts][:size]
                if not self._has(group) and not any(set(group) & set(each) for each in groups):
                    groups.append(group)
            if groups and 2 * size <= len(self._hosts):
                return Decision(groups[:SIDE_BY_SIDE])
        return self.end(ALIKE if 2 * least <= len(self._hosts) else UNKNOWN)

    def _finish(self) -> Decision:
        """Run the job without all nodes that are named."""
        rest = self._in_order(self._all - set(self._named))
        rest = rest[: len(rest) // self._multiple * self._multiple]
        wanted = len(rest) >= max(self._least, 1) and not self.count(rest)
        return Decision([rest]) if wanted else self.end(NAMED)

    def end(self, end: str, hosts: Iterable[str] = ()) -> Decision:
        """Return the end of the search; nodes that are named already stay so."""
        found, end = (self._named, NAMED) if self._named else (self._in_order(hosts), end)
        return Decision((), end, found, self._in_order(self._unclear - set(found)))

    def count(self, some: Iterable[str]) -> int:
        """Return how often these nodes ran, or should have run."""
        return sum(run.hosts == frozenset(some) for run in self._runs)

    def _has(self, some: Iterable[str]) -> bool:
        return any(run.hosts == frozenset(some) for run in self._known)

    def _size(self, hosts: int) -> int:
        """Return the smallest size of a run with so many hosts."""
        return -(-max(hosts, self._least) // self._multiple) * self._multiple

    def _in_order(self, some: Iterable[str]) -> list[str]:
        return sorted(some, key=self._hosts.index)


def _by_speed(runs: Sequence[Run], everyone: Hosts) -> tuple[list[Hosts], list[Hosts]]:
    """Return the nodes of slow runs, and of others of their size. All nodes together are slow if any are."""
    # The fastest of equal runs comes last: what else slowed one of them is no fault of its nodes.
    rates = {
        run.hosts: run.rate or 0.0 for run in sorted(runs, key=lambda run: run.rate or 0.0) if run.hosts != everyone
    }
    near = {some: [each for each in rates if len(each) == len(some) and not each & some] for some in rates}
    slow: set[Hosts] = set()
    # The second time without those that are slow, which may be more than half.
    for _ in range(2):
        usual = {some: median([rates[each] for each in near[some] if each not in slow] or [0.0]) for some in rates}
        slow |= {some for some, rate in rates.items() if rate < SLOW_PART * usual[some]}
    largest = max(map(len, slow), default=0)
    cleared = [
        some
        for some, rate in rates.items()
        # Larger parts were alike: each of them may have a slow node. So may a part that is as slow as a slow one.
        if some not in slow and len(some) <= largest
        if any(each not in slow or rates[each] < SLOW_PART * rate for each in near[some])
    ]
    return [run.hosts for run in runs if run.hosts in slow or (slow and run.hosts == everyone)], cleared
