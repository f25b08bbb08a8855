"""Which nodes are blamed for what pairs measured: cases by hand, and fleets with planted faults."""

from __future__ import annotations

import itertools
import json

import pytest
from ansible.module_utils.trainyard.blame import first_rounds, full_rounds, judge
from hypothesis import given
from hypothesis import strategies as st

N4 = ["n1", "n2", "n3", "n4"]


def names(count):
    return [f"n{number}" for number in range(1, count + 1)]


def measured(pairs, speed, number=0, healthy=10.0):
    """The measurements of a round where each pair is as fast as its slower node."""
    return [
        {
            "hosts": list(pair),
            "round": number,
            "busbw": healthy * min(speed.get(host, 1.0) for host in pair),
            "wrong": 0,
            "error": "",
        }
        for pair in pairs
    ]


def rounds_of(hosts, speed, rounds=None):
    return [
        record
        for number, pairs in enumerate(rounds or first_rounds(hosts))
        for record in measured(pairs, speed, number)
    ]


def to_the_end(hosts, measure, **options):
    """Measure and judge until nothing is to be measured again; return the blame and the number of rounds."""
    records, number = [], 0
    for pairs in first_rounds(hosts):
        records += measure(pairs, number)
        number += 1
    while (blame := judge(hosts, records, **options))["retest"]:
        assert number < 30, blame
        records += measure(blame["retest"], number)
        number += 1
    return blame, number


def state_of(blame):
    return {node["host"]: node["state"] for node in blame["nodes"]}


# Schedules


@given(st.integers(min_value=0, max_value=80), st.integers(min_value=1, max_value=6))
def test_a_round_never_asks_a_host_twice(count, rounds):
    hosts = names(count)
    for pairs in [*first_rounds(hosts, rounds), *full_rounds(hosts)]:
        busy = [host for pair in pairs for host in pair]
        assert len(busy) == len(set(busy))
        assert all(hosts.index(first) < hosts.index(second) for first, second in pairs)


@given(st.integers(min_value=0, max_value=60))
def test_the_full_matrix_has_every_pair_once_in_as_few_rounds_as_there_can_be(count):
    rounds = full_rounds(names(count))
    pairs = [pair for each in rounds for pair in each]
    assert sorted(pairs) == sorted(itertools.combinations(names(count), 2)) or count < 2
    assert len(set(pairs)) == len(pairs)
    assert len([each for each in rounds if each]) == (0 if count < 2 else count - 1 + count % 2)


@given(st.integers(min_value=3, max_value=80), st.integers(min_value=2, max_value=3))
def test_every_host_has_other_partners_in_each_of_the_first_rounds(count, rounds):
    hosts = names(count)
    found = first_rounds(hosts, rounds)
    assert len(found) == (3 if count <= 5 else rounds)
    left_out = [set(hosts) - {host for pair in pairs for host in pair} for pairs in found]
    assert all(len(out) == count % 2 for out in left_out)
    assert len(set().union(*left_out)) == sum(map(len, left_out))
    seen = [pair for pairs in found for pair in pairs]
    # Of a number that four does not divide, two are left at the end of the third round: neighbours.
    assert len(seen) - len(set(seen)) <= (rounds == 3)


def test_two_hosts_have_one_pair_and_one_has_none():
    assert first_rounds(["n1", "n2"]) == [[("n1", "n2")]] * 2
    assert first_rounds(["n1"]) == [] == first_rounds([])


def test_a_host_named_twice_is_refused():
    with pytest.raises(ValueError, match="hosts named twice: n1; expected: each host once"):
        first_rounds(["n1", "n2", "n1"])


# The judgement


def test_a_fleet_that_is_all_the_same_passes():
    blame = judge(N4, rounds_of(N4, {}))
    assert (blame["state"], blame["reason"], blame["suspects"], blame["retest"]) == ("pass", "", [], [])
    assert blame["median"] == 10.0
    assert blame["gate"] == pytest.approx(9.3)
    assert {node["score"] for node in blame["nodes"]} == {1.0}
    assert json.loads(json.dumps(blame))["pairs"] == blame["pairs"]


@pytest.mark.parametrize("count", [3, 4, 5, 6, 7, 8, 33])
@pytest.mark.parametrize("speed", [0.0, 0.1, 0.5, 0.9])
def test_one_slow_node_is_named_whatever_its_place(count, speed):
    hosts = names(count)
    for slow in hosts:
        blame, rounds = to_the_end(hosts, lambda pairs, number, slow=slow: measured(pairs, {slow: speed}, number))
        assert state_of(blame) == {host: "fail" if host == slow else "pass" for host in hosts}
        assert blame["suspects"] == [slow]
        assert rounds <= 5
        assert slow in blame["reason"]
        verdict = next(node for node in blame["nodes"] if node["host"] == slow)
        assert verdict["confidence"] > 0.99 and slow in verdict["action"]
