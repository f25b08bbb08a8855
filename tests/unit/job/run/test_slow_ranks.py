"""For which rank the others wait: when a name is said and when none, over whole runs of looks that are drawn."""

import itertools
import random

import pytest
from ansible.module_utils.trainyard.base.shapes import misfit
from ansible.module_utils.trainyard.job.run.measure import slow_ranks
from ansible.module_utils.trainyard.job.run.measure.slow_ranks import SLOW_RANK
from hypothesis import given, settings
from hypothesis import strategies as st


class Run:
    """A run whose ranks are found asleep, and waiting in a collective, with these shares; judged as the head does.

    A light look is taken about four times a second, one at stacks twice a second while the head wants it; or every so
    many seconds, `dump_s`, by rank.
    """

    def __init__(self, asleep, waiting=None, ranks_per_node=1, seed=1, on=True, step_s=None, tools=True, dump_s=()):
        self.random = random.Random(seed)  # noqa: S311 - nothing is secret here
        self.asleep, self.waiting = list(asleep), list(waiting or asleep)
        self.hosts = [f"n{rank // ranks_per_node + 1}" for rank in range(len(self.asleep))]
        self.watch, self.now, self.step_s, self.tools = slow_ranks.SlowRanks(on, 0.0), 0, step_s, tools
        self.dump_s = dump_s or [0.5] * len(self.asleep)
        self.points, self.sampling_s = itertools.count(), 0
        self.seen = [dict.fromkeys(("looks", "asleep", "dumps", "waited"), 0) for _ in self.asleep]

    def drawn(self, share):
        return int(self.random.random() < share)

    def dumps(self, every_s):
        return round(1 / every_s) if every_s < 1 else int(self.now % every_s == 0)

    def go(self, seconds):
        for _ in range(seconds):
            self.now += 1
            self.sampling_s += self.watch.sample_stacks
            for rank, seen in enumerate(self.seen):
                for _ in range(4):
                    seen["looks"], seen["asleep"] = seen["looks"] + 1, seen["asleep"] + self.drawn(self.asleep[rank])
                for _ in range(self.dumps(self.dump_s[rank]) if self.watch.sample_stacks and self.tools else 0):
                    seen["dumps"] += 1
                    seen["waited"] += self.drawn(self.waiting[rank])
            if self.now % (slow_ranks.STACKS_PERIOD_S if self.watch.sample_stacks else slow_ranks.PERIOD_S) == 0:
                for rank, seen in enumerate(self.seen):
                    told = {"rank": rank, "device": str(rank), "at": "is in step (train.py:8)", **seen}
                    facts = [f"load {rank}"]
                    shape = slow_ranks.report_shape(len(self.seen))
                    assert misfit({"ranks": [told], "node": facts}, shape) == ""
                    self.watch.add(self.hosts[rank], [told], facts)
                    seen.update(dict.fromkeys(seen, 0))
            self.watch.evaluate(self.now, float(self.now), next(self.points), self.step_s)
        return self

    def names(self):
        assert [misfit(each, SLOW_RANK) for each in self.watch.named] == [""] * len(self.watch.named)
        return [(each["host"], each["ranks"]) for each in self.watch.named]


@pytest.mark.parametrize("seed", range(20))
def test_a_rank_that_becomes_slow_is_named_within_90_seconds(seed):
    run = Run([0.3] * 4, seed=seed).go(300)
    assert run.names() == []
    run.asleep[2] = run.waiting[2] = 0.05
    for rank in (0, 1, 3):
        run.asleep[rank] = run.waiting[rank] = 0.55
    run.go(90)
    assert run.names() == [("n3", [2])]
    (named,) = run.watch.named
    assert (named["device"], named["at"], named["until_s"]) == ("2", "is in step (train.py:8)", None)
    assert named["waited"] < 20 and 40 < named["others"] < 70
    assert [rank for rank, _ in named["shares"]] == [0, 1, 2, 3]
    assert named["node"] == ["load 2"]
    # A node that is too busy to read stacks often takes longer.
    run = Run([0.3] * 4, seed=seed, dump_s=[1, 1, 3, 1]).go(300)
    run.asleep = run.waiting = [0.6, 0.6, 0.05, 0.6]
    assert run.go(120).names() == [("n3", [2])]


def test_a_node_held_to_half_a_cpu_is_named_in_time_19_times_of_20():
    """With shares of stacks like those of real hosts (benchmarks); the held node reads its own half as often."""
    named = 0
    for seed in range(40):
        run = Run([0.4] * 3, seed=seed, dump_s=[0.5, 0.5, 1]).go(110 + seed % 10)
        run.asleep, run.waiting = [0.6, 0.6, 0.2], [0.7, 0.7, 0.2]
        named += run.go(90).names() == [("n3", [2])]
    assert named >= 38


@settings(max_examples=15, deadline=None)
@given(
    st.floats(0, 1), st.integers(2, 24), st.integers(1, 8), st.lists(st.floats(0.44, 0.56), min_size=2), st.integers()
)
def test_no_rank_is_named_where_they_differ_little(share, ranks, ranks_per_node, shares, seed):
    assert Run([share] * ranks, ranks_per_node=ranks_per_node, seed=seed).go(900).names() == []
    assert Run(shares[:16], seed=seed).go(900).names() == []


def test_a_node_whose_ranks_are_all_slow_is_named_with_all_of_them():
    run = Run([0.6] * 8 + [0.05] * 8 + [0.6] * 16, ranks_per_node=8).go(90)
    assert run.names() == [("n2", list(range(8, 16)))]
    assert slow_ranks.slow_ranks_line(run.watch.named) == "slow: ranks 8 to 15 on n2"


ASLEEP, SLOW = [0.5, 0.5, 0.0, 0.5], [0.6, 0.6, 0.0, 0.6]
NO_EVIDENCE = {
    "those that sleep are in no collective": {"asleep": ASLEEP, "waiting": [0.0] * 4},
    "all wait alike": {"asleep": ASLEEP, "waiting": [0.5] * 4},
    "stacks show another rank": {"asleep": ASLEEP, "waiting": [0.5, 0.0, 0.5, 0.5]},
    "slow ranks on two nodes, as a model may be divided": {"asleep": [*SLOW, 0.0, 0.6]},
    "ranks wait busily": {"asleep": [0.0] * 4, "waiting": SLOW},
    "no py-spy": {"asleep": SLOW, "tools": False},
    "off": {"asleep": SLOW, "on": False},
    "one rank": {"asleep": [0.0]},
}


@pytest.mark.parametrize("changes", NO_EVIDENCE.values(), ids=NO_EVIDENCE)
def test_no_rank_is_named_without_evidence(changes):
    run = Run(**changes).go(3600)
    assert run.names() == []
    # Each search without a result is followed by a longer pause.
    first_hour, run.sampling_s = run.sampling_s, 0
    assert first_hour < 1000
    assert run.go(3 * 3600).sampling_s <= 1.2 * first_hour


def test_where_the_others_wait_all_the_time_steps_must_come():
    run = Run([0.4] * 4).go(60)
    run.asleep, run.waiting = [1.0, 1.0, 0.0, 1.0], [1.0, 1.0, 0.0, 1.0]
    # Without a line of progress it is a pause, or a hang; with some it is a node that is very slow.
    points = run.points
    run.points = itertools.repeat(100)
    assert run.go(900).names() == []
    run.points = points
    assert run.go(900).names() == [("n3", [2])]


@pytest.mark.parametrize("length", range(20, 200, 15))
def test_an_evaluation_by_one_rank_alone_makes_it_no_slow_one(length):
    """Meanwhile all others wait in their next collective, whenever it begins and ends."""
    run = Run([0.4] * 4).go(60 + length % 10)
    run.asleep, run.waiting = [0.0, 1.0, 1.0, 1.0], [0.0, 1.0, 1.0, 1.0]
    points, run.points = run.points, itertools.repeat(60)
    run.go(length)
    run.points = points
    run.asleep, run.waiting = [0.4] * 4, [0.4] * 4
    assert run.go(300).names() == []


def test_no_rank_is_named_before_the_first_steps():
    run = Run([0.6, 0.6, 0.0, 0.6])
    run.points = itertools.repeat(0)
    assert run.go(115).sampling_s == 0
    # A script whose lines nobody knows trains after two minutes.
    run = Run([0.6, 0.6, 0.0, 0.6])
    run.points = itertools.repeat(0)
    assert run.go(240).names() == [("n3", [2])]


def test_a_slow_rank_that_recovers_may_be_named_again():
    run = Run([0.6, 0.6, 0.0, 0.6]).go(90)
    run.asleep[2] = run.waiting[2] = 0.6
    run.go(120)
    (named,) = run.watch.named
    assert 90 < named["until_s"] <= 210
    assert slow_ranks.slow_ranks_line(run.watch.named) == ""
    run.asleep[2] = run.waiting[2] = 0.0
    assert run.go(150).names() == [("n3", [2]), ("n3", [2])]


def test_a_new_attempt_begins_anew():
    run = Run([0.6, 0.6, 0.0, 0.6]).go(90)
    run.watch.begin(run.now, 90.0)
    assert run.watch.named[0]["until_s"] == 90.0
    assert run.go(30).names() == [("n3", [2])]
    # A monitor that was started again knows who was named.
    again = slow_ranks.SlowRanks(True, 0.0, [{**run.watch.named[0], "until_s": None}])
    assert again.named[0]["until_s"] == again.named[0]["found_s"]
    assert again.current is None


def test_long_steps_need_longer():
    """One rank or the other is slow in each step, as lengths of texts make it: over few steps one seems to be."""
    run = Run([0.5, 0.5], step_s=10.0)
    for _ in range(360):
        slow = run.random.randrange(2)
        run.asleep[slow] = run.waiting[slow] = 0.05
        run.asleep[1 - slow] = run.waiting[1 - slow] = 0.4
        run.go(10)
    assert run.names() == []


NAMED = {"host": "n3", "ranks": [2], "device": "0", "waited": 3, "others": 52, "looks": 40, "found_s": 130.0,
         "at": "is in load_batch (train.py:88)", "node": ["load 9.1 (processors: 2)"], "until_s": None,
         "shares": [[0, 52], [1, 50], [2, 3], [3, 55]]}  # fmt: skip


def test_texts_of_a_slow_rank():
    assert (
        slow_ranks.slow_ranks_line([NAMED]) == "slow: rank 2 on n3, device 0" and slow_ranks.slow_ranks_line([]) == ""
    )
    text = "slow from 0:02:10 {}: {} waited for others in 3 % of 40 samples, the others in 52 %"
    mostly = "; mostly it is in load_batch (train.py:88)"
    assert slow_ranks.slow_rank_text(NAMED) == text.format("on", "rank 2 on n3, device 0") + mostly
    many = {**NAMED, "ranks": [8, 9, 10], "device": "", "at": "", "until_s": 600.0}
    assert slow_ranks.slow_rank_text(many) == text.format("to 0:10:00", "ranks 8 to 10 on n3")
    shares, node = slow_ranks.details(NAMED)
    assert "0 52 %, 1 50 %, 2 3 %, 3 55 %" in shares and node.endswith("load 9.1 (processors: 2)")
    (shares,) = slow_ranks.details({**NAMED, "node": [], "shares": [[rank, 50] for rank in range(64)]})
    assert shares.endswith("11 50 % ... 52 more")


COUNTS = {"rank": 0, "device": "", "at": "", "looks": 10, "asleep": 0, "dumps": 0, "waited": 0}


def test_a_rank_that_moved_to_another_host_is_counted_anew():
    watch = slow_ranks.SlowRanks(True, 0.0)
    for host in ("n1", "n2", "n2"):
        watch.add(host, [COUNTS])
    assert (watch._sums.of[0]["host"], watch._sums.of[0]["looks"]) == ("n2", 20)


@pytest.mark.parametrize("wrong", [{"rank": 4}, {"looks": -1}, {"asleep": 1.5}, {"dumps": 10**6}, {"at": "x" * 201}])
def test_counts_out_of_bounds_are_refused(wrong):
    shape = slow_ranks.report_shape(4)
    assert misfit({"ranks": [COUNTS], "node": []}, shape) == ""
    assert misfit({"ranks": [{**COUNTS, **wrong}], "node": []}, shape) != ""
    assert misfit({"ranks": [{**COUNTS, "more": 1}], "node": []}, shape) != ""
    assert misfit({"ranks": [COUNTS], "node": ["x" * 121]}, shape) != ""
