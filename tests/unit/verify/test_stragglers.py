"""Which nodes are blamed for what pairs measured: cases by hand, and fleets with planted faults."""

from __future__ import annotations

import itertools
import json
import random
import runpy
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.verify.pairing import first_rounds, full_rounds
from ansible.module_utils.trainyard.verify.straggler_limits import Limits
from ansible.module_utils.trainyard.verify.stragglers import MAX_MEASUREMENTS, verify
from hypothesis import given
from hypothesis import strategies as st

SIMULATOR = runpy.run_path(str(Path(__file__).resolve().parents[3] / "benchmarks/stragglers.py"))
Fleet, blamed = SIMULATOR["Fleet"], SIMULATOR["blamed"]

N4 = ["n1", "n2", "n3", "n4"]


def seeded(number):
    return random.Random(number)  # noqa: S311 - nothing is secret here


def names(count):
    return [f"n{number}" for number in range(1, count + 1)]


def record(first, second, number=0, busbw=10.0, error=""):
    return {"hosts": [first, second], "round": number, "busbw": busbw, "wrong": None if error else 0, "error": error}


def measured(pairs, speed, number=0):
    """Return the measurements of a round where each pair is as fast as its slower node."""
    return [record(*pair, number, 10.0 * min(speed.get(host, 1.0) for host in pair)) for pair in pairs]


def rounds_of(hosts, speed, rounds=None):
    return [
        each for number, pairs in enumerate(rounds or first_rounds(hosts)) for each in measured(pairs, speed, number)
    ]


def repeat(hosts, records, measure):
    """Check, and measure again until no pair is left to retest; return the result and the number of rounds."""
    number = len({each["round"] for each in records})
    while (checked := verify(hosts, records))["retest"]:
        assert number < 30, checked
        records = records + measure(checked["retest"], number)
        number += 1
    return checked, number


def to_the_end(hosts, speed=None, change=dict):
    """Repeat from the first rounds, with the given speeds of nodes and a change of each measurement."""

    def measure(pairs, number):
        return [change(each) for each in measured(pairs, speed or {}, number)]

    first = [each for number, pairs in enumerate(first_rounds(hosts)) for each in measure(pairs, number)]
    return repeat(hosts, first, measure)


def state_of(checked):
    return {node["host"]: node["state"] for node in checked["nodes"]}


def failed(checked):
    return {host for host, state in state_of(checked).items() if state == "fail"}


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
    # Two of five hosts are left when the others have met their next but one: neighbors.
    assert len(seen) - len(set(seen)) <= (rounds == 3)


def test_two_hosts_have_one_pair_one_has_none_and_no_host_is_named_twice():
    assert first_rounds(["n1", "n2"]) == [[("n1", "n2")]] * 2
    assert first_rounds(["n1"]) == [] == first_rounds([])
    with pytest.raises(ValueError, match="hosts named twice: n1; expected: each host once"):
        first_rounds(["n1", "n2", "n1"])


def test_equal_nodes_are_at_the_median():
    checked = verify(N4, rounds_of(N4, {}))
    assert (checked["median"], checked["gate"]) == (10.0, pytest.approx(9.3))
    assert {node["score"] for node in checked["nodes"]} == {1.0}
    assert json.loads(json.dumps(checked))["pairs"] == checked["pairs"]


@pytest.mark.parametrize("count", [3, 4, 5, 6, 7, 8, 33])
@pytest.mark.parametrize("speed", [0.0, 0.1, 0.5, 0.9])
def test_one_slow_node_is_named_whatever_its_place(count, speed):
    hosts = names(count)
    for at, slow in enumerate(hosts):
        checked, rounds = to_the_end(hosts, {slow: speed})
        assert state_of(checked) == {host: "fail" if host == slow else "pass" for host in hosts}
        assert checked["suspects"] == [slow] and slow in checked["reason"]
        assert rounds <= 5
        assert checked["nodes"][at]["confidence"] > 0.99 and slow in checked["nodes"][at]["action"]


@pytest.mark.parametrize("count", [3, 4, 5, 8, 9])
def test_a_frozen_node_is_named_with_the_error(count):
    lost = {"busbw": None, "wrong": None, "error": "no answer"}
    checked, _ = to_the_end(names(count), change=lambda each: {**each, **lost} if "n2" in each["hosts"] else each)
    assert checked["suspects"] == ["n2"] and checked["state"] == "fail"
    assert checked["nodes"][1]["reason"].endswith("measurements failed: no answer")
    assert checked["nodes"][1]["action"].endswith("ansible n2 -m ansible.builtin.ping")


@pytest.mark.parametrize("busbw", [10.0, 9.8])
def test_a_pair_that_does_not_meet_is_no_share_of_a_bandwidth(busbw):
    """Three nodes, each pair once: either of the two may be the cause, and the error is what is known."""
    records = [record("n2", "n3", 0, None, "no answer"), record("n1", "n2", 1), record("n1", "n3", 2, busbw)]
    checked = verify(names(3), records)
    assert checked["state"] == "unknown"
    assert "1 of 2 measurements failed: no answer" in checked["reason"]


def test_reports_of_both_nodes_about_one_measurement_count_once():
    fine = rounds_of(N4, {})
    checked = verify(N4, [*fine, record(*fine[0]["hosts"][::-1], 0, None, "reset")])
    assert len(checked["pairs"]) == len(fine)
    assert [pair["error"] for pair in checked["pairs"] if pair["error"]] == ["reset"]


@pytest.mark.parametrize("count", [*range(4, 24), 33, 64])
@pytest.mark.parametrize("first", [0, 1])
def test_every_second_node_that_is_slow_is_named(count, first):
    """Another card in each second slot: among neighbors alone there is not one pair without it."""
    slow = set(names(count)[first::2])
    assert failed(to_the_end(names(count), dict.fromkeys(slow, 0.6))[0]) == slow


def test_slow_neighbors_are_distinguished_from_healthy_ones():
    hosts = names(16)
    bad = {"n5": 0.6, "n6": 0.6, "n8": 0.6, "n16": 0.3}
    first = verify(hosts, rounds_of(hosts, bad))
    # n7 has met none but slow ones: it is a suspect until it has met another.
    assert first["suspects"] == ["n5", "n6", "n7", "n8", "n16"]
    assert state_of(first)["n7"] == "unknown"
    partners = {host: other for pair in first["retest"] for host, other in (pair, pair[::-1])}
    assert not {partners[host] for host in first["suspects"]} & set(first["suspects"])
    last, rounds = to_the_end(hosts, bad)
    assert last["suspects"] == sorted(bad, key=hosts.index)
    assert rounds <= 5


def test_a_retest_brings_pairs_of_healthy_nodes_as_a_yardstick():
    hosts = names(12)
    retest = verify(hosts, rounds_of(hosts, {"n3": 0.5}))["retest"]
    with_suspect = [pair for pair in retest if "n3" in pair]
    assert len(with_suspect) == 1 and len(retest) > 1
    assert set(with_suspect[0]) & {"n1", "n4"} == set()


def test_a_slow_moment_is_repeated_and_forgiven():
    hosts = names(6)
    records = rounds_of(hosts, {})
    records[0]["busbw"] = 4.0
    first = verify(hosts, records)
    assert ("n1", "n2") in first["retest"]
    assert first["state"] == "unknown"
    again = verify(hosts, records + measured(first["retest"], {}, 2))
    assert (again["state"], again["suspects"], again["retest"], again["paths"]) == ("pass", [], [], [])


def test_a_slow_path_between_healthy_nodes_fails_no_node():
    checked, _ = to_the_end(
        names(8), change=lambda each: each | {"busbw": 3.0} if each["hosts"] == ["n1", "n3"] else each
    )
    assert set(state_of(checked).values()) == {"pass"}
    assert (checked["state"], checked["suspects"]) == ("fail", [])
    assert [(path["hosts"], path["relative"]) for path in checked["paths"]] == [(["n1", "n3"], 0.3)]
    assert "between n1 and n3 only 30%" in checked["reason"]


def test_a_path_that_is_slow_twice_is_not_decided_yet():
    hosts = names(8)
    records = rounds_of(hosts, {}, [*first_rounds(hosts), [("n1", "n4"), ("n2", "n3"), ("n5", "n8")]])
    for each in records:
        each["busbw"] = 3.0 if each["hosts"] == ["n2", "n3"] else 10.0
    # Both were fast with another one, and with one more: it is the path, or passes.
    checked = verify(hosts, records + measured([("n2", "n5"), ("n3", "n6")], {}, 3))
    assert set(state_of(checked).values()) == {"pass"}
    assert (checked["state"], checked["paths"]) == ("unknown", [])
    assert ("n2", "n3") in checked["retest"]
    assert checked["reason"].endswith("slow though both nodes were fast elsewhere: n2-n3")


@pytest.mark.parametrize(("count", "bad"), [(3, {"n2"}), (4, {"n2"}), (5, {"n2"}), (8, {"n2"}), (8, {"n3", "n4"})])
def test_wrong_results_are_blamed_on_the_nodes_that_all_of_them_share(count, bad):
    checked, rounds = to_the_end(names(count), change=lambda each: {**each, "wrong": len(bad & {*each["hosts"]})})
    assert (checked["state"], checked["suspects"]) == ("fail", sorted(bad))
    assert rounds <= 6
    (first, *_) = (node for node in checked["nodes"] if node["host"] in bad)
    assert "wrong results in" in first["reason"]


def test_a_wrong_result_that_never_comes_again_stays_a_failure_of_one_of_the_two():
    records = rounds_of(N4, {})
    records[0]["wrong"] = 1
    checked, _ = repeat(N4, records, lambda pairs, number: measured(pairs, {}, number))
    assert (checked["state"], checked["suspects"]) == ("fail", ["n1", "n2"])
    assert checked["reason"] == "n1 or n2 computed a wrong result"
    assert all(node["measurements"] <= MAX_MEASUREMENTS for node in checked["nodes"])


FINE = rounds_of(N4, {})
DEAD = [record("n1", "n2", 0, None, "no answer"), record("n3", "n4", 0, None, "no answer")]


@pytest.mark.parametrize(
    ("records", "options", "state", "reason"),
    [
        (FINE, {}, "pass", ""),
        # Results that were not checked are no fault.
        ([{**each, "wrong": None} for each in FINE], {}, "pass", ""),
        ([{**each, "wrong": 3} for each in FINE], {}, "fail", "every pair computed wrong results: no single node"),
        (DEAD, {}, "fail", "no pair of nodes could be measured: no answer"),
        (FINE, {"expected": 12.0}, "pass", ""),
        (FINE, {"expected": 25.0}, "fail", "even the fast pairs have only 10 GB/s, expected at least 20"),
        (FINE, {"expected": 25.0, "limits": Limits(fraction=0.3)}, "pass", ""),
    ],
)
def test_what_all_nodes_share_is_blamed_on_none(records, options, state, reason):
    checked = verify(N4, records, **options)
    assert (checked["state"], checked["suspects"], checked["retest"]) == (state, [], [])
    assert checked["reason"].startswith(reason) and bool(checked["reason"]) == bool(reason)


def test_nothing_measured_is_unknown():
    assert [verify(hosts, [])["state"] for hosts in ([], ["n1"], N4)] == ["unknown"] * 3
    assert verify(["n1"], [])["reason"] == "one node has no partner"


def test_a_node_that_was_never_measured_is_measured_next():
    hosts = names(8)
    records = [each for each in rounds_of(hosts, {}) if "n4" not in each["hosts"]]
    checked = verify(hosts, records)
    assert (checked["state"], checked["suspects"]) == ("unknown", ["n4"])
    assert [pair for pair in checked["retest"] if "n4" in pair]
    assert verify(hosts, records + measured(checked["retest"], {}, 2))["state"] == "pass"


def test_a_round_that_is_slower_for_all_speaks_against_nobody():
    records = rounds_of(names(32), {"n9": 0.6})
    records = [{**each, "busbw": each["busbw"] * (1.0 if each["round"] else 0.7)} for each in records]
    assert verify(names(32), records)["suspects"] == ["n9"]


def test_scatter_lowers_the_gate():
    hosts, rng = names(16), seeded(1)
    checked = verify(hosts, [{**each, "busbw": each["busbw"] * rng.gauss(1, 0.08)} for each in rounds_of(hosts, {})])
    assert 0.04 < checked["spread"] < 0.2
    assert checked["gate"] == pytest.approx(checked["median"] * (1 - 3 * checked["spread"]), rel=1e-3)
    assert "the measurements scatter so much that only nodes below" in checked["reason"]


def test_many_slow_nodes_may_be_another_kind():
    checked, _ = to_the_end(names(12), dict.fromkeys(names(5), 0.5))
    assert checked["reason"].startswith("n1 to n5 are not healthy; so many may have another kind of card")


@pytest.mark.parametrize("busbw", [None, float("nan"), float("inf"), -1.0])
def test_a_bandwidth_that_is_no_number_is_an_error(busbw):
    records = rounds_of(N4, {})
    records[0]["busbw"] = busbw
    assert verify(N4, records)["pairs"][0]["error"].startswith("no bandwidth, found ")


@pytest.mark.parametrize("wrong", [["n1", "n9"], ["n1"], ["n1", "n1"]])
def test_measurements_of_others_are_refused(wrong):
    with pytest.raises(ValueError, match="expected: two of the 4 hosts that are checked"):
        verify(N4, [{**record("n1", "n2"), "hosts": wrong}])


@given(st.randoms(use_true_random=False), st.integers(min_value=3, max_value=40))
def test_slow_nodes_are_found_in_any_place_as_long_as_most_are_healthy(rng, count):
    """Without noise: every slow node is named, nobody else is, whatever the order of the measurements."""
    hosts = names(count)
    bad = {host: rng.uniform(0.1, 0.9) for host in rng.sample(hosts, max(1, count // 5))}
    checked, rounds = to_the_end(hosts, bad)
    assert failed(checked) == set(bad)
    assert set(state_of(checked).values()) == {"pass", "fail"}
    assert rounds <= 7
    records = rounds_of(hosts, bad)
    assert verify(hosts, rng.sample(records, len(records))) == verify(hosts, records)


@given(st.integers(min_value=0, max_value=2**32), st.integers(min_value=2, max_value=24))
def test_the_rounds_end_for_any_measurements(seed, count):
    rng = seeded(seed)
    fleet = Fleet(
        count,
        speed={at: rng.random() for at in range(count) if rng.random() < 0.3},
        silent=frozenset(at for at in range(count) if rng.random() < 0.1),
        wrong=frozenset(at for at in range(count) if rng.random() < 0.1),
        noise=rng.choice((0.0, 0.02, 0.3)),
        disturbed=rng.choice((0.0, 0.3)),
    )
    hosts = list(map(str, range(count)))

    def measure(pairs, number):
        return list(fleet.measure(rng, pairs, number))

    first = [each for number, pairs in enumerate(first_rounds(hosts)) for each in measure(pairs, number)]
    checked, _ = repeat(hosts, first, measure)
    assert json.loads(json.dumps(checked))["retest"] == []
    assert all(0 <= node["confidence"] <= 1 for node in checked["nodes"])
    assert all((node["state"] == "pass") or node["reason"] for node in checked["nodes"])


def test_in_simulated_clusters_faults_are_found_and_false_alarms_are_rare():
    """The published figures (docs/stragglers.md) in small: noise of 1 %, one measurement in a hundred disturbed."""
    rng = seeded(11)
    outcomes = [blamed(Fleet(64, dict.fromkeys(rng.sample(range(64), 3), 0.8)), rng) for _ in range(30)]
    assert sum(outcome.hits for outcome in outcomes) == 90
    assert sum(outcome.false_alarms for outcome in outcomes) == 0
    assert max(outcome.rounds for outcome in outcomes) <= 6


def test_a_node_far_below_all_others_is_named_however_much_these_scatter():
    """Measured on five containers that shared two busy cores; n2's link was limited to a fiftieth."""
    pairs = [
        ("n2", "n4", 0, 0.0088), ("n5", "n3", 0, 0.3368), ("n4", "n5", 1, 0.1699), ("n3", "n1", 1, 0.3115),
        ("n2", "n1", 2, 0.0094), ("n4", "n3", 2, 0.1377), ("n2", "n5", 3, 0.0086), ("n4", "n3", 3, 0.5206),
        ("n2", "n3", 4, 0.0066), ("n4", "n5", 4, 0.5204), ("n4", "n3", 5, 0.2093), ("n5", "n1", 5, 0.1525),
    ]  # fmt: skip
    checked = verify(names(5), [record(*each) for each in pairs])
    assert (checked["state"], failed(checked)) == ("fail", {"n2"})


# Two nodes have one pair: it is checked by what is expected, and otherwise not at all.


@pytest.mark.parametrize(
    ("measurements", "expected", "state", "suspects", "reason"),
    [
        ((10.0, 10.0), None, "skipped", [], "one pair has nothing to compare it with"),
        ((10.0, 10.0), 11.0, "pass", [], ""),
        # However much one pair scatters, no node is blamed.
        ((10.0, 6.0), None, "skipped", [], "one pair has nothing to compare it with"),
        ((10.0, 6.0), 11.0, "pass", [], ""),
        ((10.0, 10.0), 100.0, "fail", ["n1", "n2"], ""),
        # A measurement that failed should have been one.
        ((10.0, None), None, "unknown", ["n1", "n2"], "undecided: n1, n2, 1 of 2 measurements failed: no answer"),
        ((None,), None, "fail", ["n1", "n2"], "no pair of nodes could be measured: no answer"),
    ],
)
def test_one_pair_needs_an_expected_value(measurements, expected, state, suspects, reason):
    records = [
        record("n1", "n2", number, busbw, "" if busbw else "no answer") for number, busbw in enumerate(measurements)
    ]
    checked = verify(["n1", "n2"], records, expected=expected)
    assert (checked["state"], checked["suspects"], checked["retest"]) == (state, suspects, [])
    assert checked["reason"].startswith(reason)


def test_one_pair_fails_for_a_wrong_result_and_otherwise_has_an_action():
    assert verify(["n1", "n2"], [{**record("n1", "n2"), "wrong": 3}])["state"] == "fail"
    assert "pair_busbw" in verify(["n1", "n2"], [record("n1", "n2")])["nodes"][0]["action"]
