# SPDX-License-Identifier: Apache-2.0
"""Find the ranks that slow down a job while it runs: suspected by cheap samples, confirmed by Python stacks.

In synchronous training all ranks take equally long for a step, but the slow one waits less. Each node samples its ranks
about four times a second: whether all threads sleep, the main one for another thread (a futex, proc(5)). If a rank
sleeps less often than the others, all nodes also sample Python stacks for a minute or two. A rank is reported only if
both agree: the others wait in a collective, and this rank does not.

    looks, asleep    cheap samples of a rank, and how many found it asleep
    dumps, waited    samples of its stack, and how many found it waiting for others (stacks.waiting)

A wrong report is worse than none. Ranks of several nodes are never reported (the model is divided so, no node is slow),
nor one for which the others wait all the time (a pause, or a hang), nor one that was found once. Times are seconds.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ....base.shapes import DURATION, MAYBE_DURATION, Exact, Few, Text, Whole
from ....base.spans import named_ranks
from ..logs import stacks
from ..logs.progress import clock

Record = dict[str, Any]

# A slow rank in the state of a job.
SLOW_RANK = {
    **dict.fromkeys(("host", "device", "at"), str),
    **dict.fromkeys(("waited", "others", "looks"), int),
    "ranks": [int],
    "shares": [[int]],
    "node": [str],
    "found_s": DURATION,
    "until_s": MAYBE_DURATION,
}

# Seconds between two reports of a node: usually, and while it samples stacks.
PERIOD_S, STACKS_PERIOD_S = 10.0, 5.0
# How long samples count, in seconds, or for so many steps if these are long.
MEMORY_S, MEMORY_STEPS, MAX_MEMORY_S = 20.0, 5, 300.0
# Distance from the other ranks, in standard deviations: to sample stacks, and to be reported.
_SUSPECT, _SURE_ASLEEP, _SURE_WAITED = 2.0, 4.0, 2.5
# Samples of stacks are evaluated in blocks of this many seconds or steps, twice as long if a rank has fewer samples
# than _BLOCK_LOOKS. The rank must differ by the share _BLOCK_GAP in _BLOCKS successive blocks, over _STEPS steps or
# _STEPS_S seconds.
BLOCK_S, _BLOCK_STEPS, _BLOCK_LOOKS, _BLOCK_GAP = 15.0, 5, 8, 0.15
_BLOCKS, _STEPS, _STEPS_S = 2, 20, 300.0
# If the others wait more often than this, in percent, and there is no progress, it is a pause or a hang.
_ALWAYS = 95
# Time for which stacks are sampled; the pause after a search without result, which doubles each time.
STACKS_S, REST_S, MAX_REST_S = 120.0, 60.0, 1800.0
# A slow rank has recovered if it is this near to the others in _CALM successive evaluations.
_NEAR, _CALM = 0.125, 3
# Lines of progress, or seconds without any, after which ranks count as training.
_POINTS, _QUIET_S = 2, 120.0
# Upper bounds: reports that are saved, ranks of one report, characters of a place.
MAX_REPORTS, MAX_LISTED, MAX_AT = 16, 64, 200
# Upper bounds for the facts of a node, and for the characters of one.
_MAX_FACTS, _MAX_FACT = 8, 120

_COUNT = Whole(10_000)
_COUNTS = ("looks", "asleep", "dumps", "waited")


def report_shape(world_size: int) -> Exact:
    """Return the shape of a node's report: counts of its ranks, and in `node` facts that slow it down.

    `at` is the most frequent place of a rank that does not wait, or "".
    """
    names = {"rank": Whole(world_size - 1), "device": Text(stacks.MAX_NAME), "at": Text(MAX_AT)}
    ranks = Few(Exact({**names, **dict.fromkeys(_COUNTS, _COUNT)}), stacks.MAX_RANKS)
    return Exact({"ranks": ranks, "node": Few(Text(_MAX_FACT), _MAX_FACTS)})


class _Sums:
    """Sums of the samples of each rank."""

    def __init__(self) -> None:
        self.of: dict[int, Record] = {}

    def add(self, host: str, counts: Mapping[str, Any], places: Mapping[str, int]) -> None:
        sums = self.of.get(counts["rank"])
        if sums is None or sums["host"] != host:
            zeros = dict.fromkeys(_COUNTS, 0.0)
            sums = self.of[counts["rank"]] = {"host": host, "device": counts["device"], "at": Counter(), **zeros}
        for looks, found in (("looks", "asleep"), ("dumps", "waited")):
            sums[looks] += counts[looks]
            sums[found] += min(counts[found], counts[looks])
        sums["at"].update(places)

    def merge(self, other: _Sums) -> None:
        for rank, sums in other.of.items():
            self.add(sums["host"], {"rank": rank, **sums}, sums["at"])

    def behind(
        self, looks: str, found: str, deviations: float, least: int = stacks.MIN_SAMPLES, gap: float = 0.25
    ) -> tuple[dict[int, str], int]:
        """Return the ranks that wait less than the others, with their hosts, and the percentage of the others."""
        shares: dict[str, list[Record]] = {}
        for rank, sums in self.of.items():
            shares.setdefault(sums["host"], []).append({"rank": rank, "looks": sums[looks], "waited": sums[found]})
        # Among many ranks, one differs by chance.
        wide = math.sqrt(deviations**2 + 2 * math.log(max(2, len(self.of)) / 2)) if deviations else 0.0
        behind, usual = stacks.slow(shares, wide, least, gap)
        return {record["rank"]: host for host, record in behind}, usual

    def enough(self) -> bool:
        """Return whether every rank with stacks has enough of them: a slow node reads fewer."""
        return all(sums["dumps"] >= _BLOCK_LOOKS for sums in self.of.values() if sums["dumps"])

    def sure(self) -> tuple[str, list[int], int]:
        """Return host and ranks that both kinds of samples find slow, "" without any, and `usual`."""
        asleep, _ = self.behind("looks", "asleep", _SURE_ASLEEP)
        waited, usual = self.behind("dumps", "waited", _SURE_WAITED)
        ranks = sorted(asleep.keys() & waited.keys())
        hosts = {*asleep.values(), *waited.values()}
        return (hosts.pop() if ranks and len(hosts) == 1 else ""), ranks, usual

    def maybe(self, steps_come: bool) -> set[str]:
        """Return the hosts of ranks that both kinds of samples find slower; none if the others do nothing but wait."""
        asleep, _ = self.behind("looks", "asleep", 0.0, _BLOCK_LOOKS, _BLOCK_GAP)
        waited, usual = self.behind("dumps", "waited", 0.0, _BLOCK_LOOKS, _BLOCK_GAP)
        return {asleep[rank] for rank in asleep.keys() & waited.keys()} if usual <= _ALWAYS or steps_come else set()


class SlowRanks:
    """The head's search for slow ranks. Switched off, it requests no stacks and reports nothing."""

    def __init__(self, on: bool, now: float, previous: Iterable[Mapping[str, Any]] = ()) -> None:
        """Take whether to search; `previous` are the reports of an earlier monitor. `now` is monotonic."""
        self._on, self._began_at, self._evaluated_at = on, now, now
        # Lines of progress when the attempt and the block began.
        self._points: int | None = None
        self._block_points = 0
        # Whether all nodes sample stacks, and since when; the end and the length of the pause.
        self.sample_stacks = False
        self._since, self._rest_until, self._rest_s = now, now, REST_S
        # Sums of this block or of the last seconds; of all blocks that agree, with their number, hosts and begin.
        self._sums, self._total = _Sums(), _Sums()
        self._hosts = set[str]()
        self._blocks, self._block_at, self._agree_at = 0, now, now
        self._calm = 0
        self._facts: dict[str, list[str]] = {}
        # All reports, the oldest first; the last one is current while it has no `until_s`.
        self.named: list[Record] = [dict(each) for each in previous][-MAX_REPORTS:]
        self._end_named(None)

    def begin(self, now: float, elapsed_s: float) -> None:
        """Begin an attempt, and forget all samples."""
        self._began_at, self._points = now, None
        self._end_named(elapsed_s)
        self._rest_until, self._rest_s = now, REST_S
        self._forget(now)

    def add(self, host: str, ranks: Iterable[Mapping[str, Any]], node: Sequence[str] = ()) -> None:
        """Add a node's report: the samples of its ranks since the last one, and facts that slow it down."""
        self._facts[host] = list(node)
        for counts in ranks if self._on else ():
            self._sums.add(host, counts, {counts["at"]: 1} if counts["at"] else {})

    def evaluate(self, now: float, elapsed_s: float, points: int, step_s: float | None) -> None:
        """Evaluate the samples every PERIOD_S.

        `points` counts the lines of progress so far, `step_s` is the time of a step if known, `elapsed_s` the time
        since the job began.
        """
        passed_s = now - self._evaluated_at
        if not self._on or passed_s < (STACKS_PERIOD_S if self.sample_stacks else PERIOD_S):
            return
        self._evaluated_at = now
        self._points = points if self._points is None else self._points
        if points - self._points < _POINTS and now - self._began_at < _QUIET_S:
            self._forget(now)
        elif self.sample_stacks:
            self._confirm(now, elapsed_s, points, step_s or 0.0)
            return
        elif self.current:
            self._check_recovery(elapsed_s)
        elif now >= self._rest_until and self._sums.behind("looks", "asleep", _SUSPECT)[0]:
            self._forget(now)
            self.sample_stacks, self._block_points = True, points
        remaining = math.exp(-passed_s / min(max(MEMORY_S, MEMORY_STEPS * (step_s or 0.0)), MAX_MEMORY_S))
        for sums in self._sums.of.values():
            for name in _COUNTS:
                sums[name] *= remaining

    @property
    def current(self) -> Record | None:
        """Return the report of the rank that is slow now."""
        return self.named[-1] if self.named and self.named[-1]["until_s"] is None else None

    def _forget(self, now: float) -> None:
        self._sums, self._total, self._blocks, self._hosts = _Sums(), _Sums(), 0, set()
        self._since = self._block_at = self._agree_at = now
        self.sample_stacks, self._calm = False, 0

    def _end_named(self, elapsed_s: float | None) -> None:
        current = self.current
        if current:
            current["until_s"] = round(current["found_s"] if elapsed_s is None else elapsed_s, 1)

    def _confirm(self, now: float, elapsed_s: float, points: int, step_s: float) -> None:
        least_s = min(_STEPS * step_s, _STEPS_S)
        block_s = max(BLOCK_S, least_s * _BLOCK_STEPS / _STEPS)
        if now - self._block_at >= (block_s if self._sums.enough() else 2 * block_s):
            hosts = self._sums.maybe(points - self._block_points >= _POINTS)
            if not hosts & self._hosts:
                self._total, self._blocks, self._hosts, self._agree_at = _Sums(), 0, hosts, self._block_at
            self._hosts, self._blocks = self._hosts & hosts, self._blocks + 1
            self._total.merge(self._sums)
            self._sums, self._block_at, self._block_points = _Sums(), now, points
            if self._blocks >= _BLOCKS and now - self._agree_at >= least_s:
                sure, ranks, usual = self._total.sure()
                if sure in self._hosts:
                    self._report(ranks, usual, elapsed_s)
                    self._forget(now)
                    self._rest_s = REST_S
                    return
        if now - self._since >= max(STACKS_S, 2 * least_s):
            self._forget(now)
            self._rest_until, self._rest_s = now + self._rest_s, min(2 * self._rest_s, MAX_REST_S)

    def _report(self, ranks: Sequence[int], usual: int, elapsed_s: float) -> None:
        own = [self._total.of[rank] for rank in ranks]
        looks, waited = (sum(each[name] for each in own) for name in ("dumps", "waited"))
        places = sum((each["at"] for each in own), Counter[str]())
        sampled = {rank: sums for rank, sums in self._total.of.items() if sums["dumps"]}
        shares = [[rank, round(100 * sums["waited"] / sums["dumps"])] for rank, sums in sampled.items()]
        named = {
            "host": own[0]["host"],
            "ranks": list(ranks[:MAX_LISTED]),
            "device": own[0]["device"] if len(ranks) == 1 else "",
            "waited": round(100 * waited / max(1.0, looks)),
            "others": usual,
            "looks": round(looks),
            "at": places.most_common(1)[0][0] if places else "",
            "node": self._facts.get(own[0]["host"], []),
            "shares": sorted(sorted(shares, key=lambda each: each[1])[:MAX_LISTED]),
            "found_s": round(elapsed_s, 1),
            "until_s": None,
        }
        self.named = [*self.named[1 - MAX_REPORTS :], named]

    def _check_recovery(self, elapsed_s: float) -> None:
        shares = {rank: sums["asleep"] / sums["looks"] for rank, sums in self._sums.of.items() if sums["looks"] >= 1}
        ranks = self.named[-1]["ranks"]
        own = [shares[rank] for rank in ranks if rank in shares]
        others = sorted(share for rank, share in shares.items() if rank not in ranks)
        if own and others:
            self._calm = self._calm + 1 if others[len(others) // 2] - sum(own) / len(own) < _NEAR else 0
        if self._calm >= _CALM:
            self._end_named(elapsed_s)


def _ranks_text(named: Mapping[str, Any]) -> str:
    ranks = named["ranks"]
    device = f", device {named['device']}" if named["device"] else ""
    return f"{named_ranks(ranks)} on {named['host']}{device}"


def slow_ranks_line(named: Sequence[Mapping[str, Any]]) -> str:
    """Return the text for the progress line; "" if no rank is slow now."""
    return f"slow: {_ranks_text(named[-1])}" if named and named[-1]["until_s"] is None else ""


def slow_rank_text(named: Mapping[str, Any]) -> str:
    """Return for which rank the others waited, the evidence, and the time."""
    until = "" if named["until_s"] is None else f" to {clock(named['until_s'])}"
    where = f"; mostly {'it' if len(named['ranks']) == 1 else 'one of them'} {named['at']}" if named["at"] else ""
    return (
        f"slow from {clock(named['found_s'])}{until or ' on'}: {_ranks_text(named)} waited for others in "
        f"{named['waited']} % of {named['looks']} samples, the others in {named['others']} %{where}"
    )


def details(named: Mapping[str, Any]) -> list[str]:
    """Return how often each rank waited, and what slowed its node down meanwhile."""
    shares = ", ".join(f"{rank} {share} %" for rank, share in named["shares"][: stacks.MAX_LINES])
    more = len(named["shares"]) - stacks.MAX_LINES
    lines = [f"found waiting, by rank: {shares}" + (f" ... {more} more" if more > 0 else "")]
    return [*lines, *([f"{named['host']} then: {', '.join(named['node'])}"] if named["node"] else [])]
