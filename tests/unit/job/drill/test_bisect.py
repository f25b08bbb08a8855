"""Which nodes run a failing job next, and which are named, on simulated clusters."""

import random
from types import SimpleNamespace

import pytest
from ansible.module_utils.trainyard.job.drill import bisect
from ansible.module_utils.trainyard.job.drill.bisect import Run, decide

FAILURES = (bisect.CRASHED, bisect.HUNG, bisect.NOT_A_NUMBER, bisect.SLOW)


def search(nodes, faulty, kind=bisect.CRASHED, *, fails=None, least=1, multiple=1, not_started=0.0, seed=7):
    """Search on a simulated cluster whose runs fail with a faulty node, or as `fails` says of their numbers."""
    chosen, runs, rounds = random.Random(seed), [], 0  # noqa: S311
    hosts = [f"n{number}" for number in range(nodes)]
    fails = fails or (lambda numbers: bool(numbers & faulty))
    while (found := decide(hosts, runs, least, multiple)).runs:
        rounds += 1
        assert rounds < 40 and len({host for names in found.runs for host in names}) == sum(map(len, found.runs))
        for names in found.runs:
            assert len(names) == nodes or (len(names) >= least and len(names) % multiple == 0)
            rate, failed = chosen.uniform(1.9, 2.1), fails({int(host[1:]) for host in names})
            outcome = kind if failed and kind != bisect.SLOW else bisect.PASSED
            outcome = bisect.NOTHING if chosen.random() < not_started else outcome
            runs.append(Run(frozenset(names), outcome, rate * (0.6 if failed else 1.0)))
    return SimpleNamespace(end=found.end, hosts={int(host[1:]) for host in found.hosts}, rounds=rounds, runs=runs)


@pytest.mark.parametrize("kind", FAILURES)
def test_one_of_sixteen_nodes_is_named_in_six_rounds_and_healthy_ones_are_alike(kind):
    for number in range(16):
        found = search(16, {number}, kind)
        assert (found.end, found.hosts) == (bisect.NAMED, {number}) and found.rounds <= 6
        # It has failed alone, and the others ran together without it.
        assert {1, 15} <= {len(run.hosts) for run in found.runs}
    assert {search(nodes, set(), kind).end for nodes in range(2, 20)} == {bisect.ALIKE}


@pytest.mark.parametrize("group", range(4))
def test_no_innocent_node_is_ever_named(group):
    """1,000 clusters of 2 to 24 nodes: up to three faulty ones, launches that do not start, least numbers of nodes."""
    complete = 0
    for seed in range(250 * group, 250 * group + 250):
        chosen = random.Random(seed)  # noqa: S311
        multiple = chosen.choice([1, 1, 2, 4])
        nodes = multiple * chosen.randint(-(-2 // multiple), 24 // multiple)
        faulty = set(chosen.sample(range(nodes), min(nodes, chosen.choice([0, 1, 1, 1, 2, 3]))))
        settings = {"least": min(nodes, chosen.choice([1, 1, 2, 3, 5])), "multiple": multiple, "seed": seed}
        found = search(nodes, faulty, chosen.choice(FAILURES), not_started=0.05, **settings)
        assert found.end != bisect.PAIR and (found.hosts <= faulty or found.end != bisect.NAMED), seed
        complete += found.end == bisect.NAMED and found.hosts == faulty
        # The fault comes and goes.
        found = search(nodes, set(), fails=lambda numbers, it=chosen: 0 in numbers and it.random() < 0.5, seed=seed)
        assert (found.hosts == {0} or found.end != bisect.NAMED) and (0 in found.hosts or found.end != bisect.PAIR)
    assert complete > 150


def test_two_nodes_that_fail_only_together_are_a_pair():
    for first in range(16):
        for second in range(first):
            found = search(16, set(), fails=lambda numbers, pair={first, second}: pair <= numbers)
            assert (found.end, found.hosts) == (bisect.PAIR, {first, second}) and found.rounds <= 14


@pytest.mark.parametrize("least", [2, 3, 4, 8, 9, 12, 15])
def test_a_job_that_needs_so_many_nodes_names_its_faulty_one(least):
    for number in range(16):
        found = search(16, {number}, least=least)
        assert (found.end, found.hosts) == (bisect.NAMED, {number})


def test_what_no_node_alone_explains_names_none():
    for many in range(3, 17):
        found = search(16, set(), fails=lambda numbers, many=many: len(numbers) >= many)
        assert (found.end, len(found.hosts)) == (bisect.TOGETHER, many)
    for nodes in (2, 3, 16):
        assert search(nodes, set(range(nodes))).end == bisect.EVERYWHERE
    found = search(4, {1}, not_started=1.0)
    assert (found.end, found.rounds) == (bisect.UNKNOWN, bisect.ATTEMPTS)
    # Nobody said that the job needs two nodes.
    found = search(16, {5}, fails=lambda numbers: 5 in numbers or len(numbers) < 2)
    assert (found.end, found.hosts) == (bisect.NAMED, {5})


def lost(since, last):
    return {"loss_not_a_number": {"since": {"step": since}, "last": {"step": last}}}


@pytest.mark.parametrize(
    ("state", "kind", "more", "expected"),
    [
        ("stopped", None, {}, bisect.NOTHING),
        # Ended because of its loss; too early to say, or without steps.
        ("stopped", None, lost(4.0, 14.0), bisect.NOT_A_NUMBER),
        ("stopped", None, lost(4.0, 13.0), bisect.NOTHING),
        ("stopped", None, lost(None, 14.0), bisect.NOTHING),
        ("failed", "not_started", {}, bisect.NOTHING),
        ("failed", "exit", {}, bisect.CRASHED),
        ("timed_out", "timed_out", {}, bisect.HUNG),
        ("succeeded", None, {"loss_not_a_number": {"since": None}}, bisect.PASSED),
        ("timed_out", None, {"loss_not_a_number": {"since": {"step": 4.0}}}, bisect.NOT_A_NUMBER),
    ],
)
def test_an_outcome_is_read_from_the_summary(state, kind, more, expected):
    points = [{"step": 1.0, "elapsed_s": 9.0}, *({"step": 1.0 + n, "elapsed_s": 9.0 + n / 2} for n in range(1, 8))]
    found = bisect.outcome({"state": state, "failure": kind and {"kind": kind}, **more}, points)
    assert found == (expected, None if expected == bisect.NOTHING else 2.0)
    assert bisect.outcome(None, points[:1]) == (bisect.NOTHING, None)
