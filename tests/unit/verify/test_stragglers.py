"""Which nodes are blamed for what pairs measured: cases by hand, and fleets with planted faults."""

from __future__ import annotations

import itertools
import json
import random
import runpy
from pathlib import Path

import pytest
from ansible.module_utils.trainyard.verify.straggler_limits import Limits
from ansible.module_utils.trainyard.verify.stragglers import MOST_MEASUREMENTS, first_rounds, full_rounds, verify
from hypothesis import given
from hypothesis import strategies as st

SIMULATOR = runpy.run_path(str(Path(__file__).resolve().parents[3] / "benchmarks/stragglers.py"))
Fleet, blamed = SIMULATOR["Fleet"], SIMULATOR["blamed"]

N4 = ["n1", "n2", "n3", "n4"]


def seeded(number):
    return random.Random(number)  # noqa: S311 - nothing is secret here


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
    """Measure and check until nothing is to be measured again; return the result and the number of rounds."""
    records, number = [], 0
    for pairs in first_rounds(hosts):
        records += measure(pairs, number)
        number += 1
    while (checked := verify(hosts, records, **options))["retest"]:
        assert number < 30, checked
        records += measure(checked["retest"], number)
        number += 1
    return checked, number


def state_of(checked):
    return {node["host"]: node["state"] for node in checked["nodes"]}


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
    # Two of five hosts are left when the others have met their next but one: neighbors.
    assert len(seen) - len(set(seen)) <= (rounds == 3)


def test_two_hosts_have_one_pair_and_one_has_none():
    assert first_rounds(["n1", "n2"]) == [[("n1", "n2")]] * 2
    assert first_rounds(["n1"]) == [] == first_rounds([])


def test_a_host_named_twice_is_refused():
    with pytest.raises(ValueError, match="hosts named twice: n1; expected: each host once"):
        first_rounds(["n1", "n2", "n1"])


# The result


def test_a_fleet_that_is_all_the_same_passes():
    checked = verify(N4, rounds_of(N4, {}))
    assert (checked["state"], checked["reason"], checked["suspects"], checked["retest"]) == ("pass", "", [], [])
    assert checked["median"] == 10.0
    assert checked["gate"] == pytest.approx(9.3)
    assert {node["score"] for node in checked["nodes"]} == {1.0}
    assert json.loads(json.dumps(checked))["pairs"] == checked["pairs"]


@pytest.mark.parametrize("count", [3, 4, 5, 6, 7, 8, 33])
@pytest.mark.parametrize("speed", [0.0, 0.1, 0.5, 0.9])
def test_one_slow_node_is_named_whatever_its_place(count, speed):
    hosts = names(count)
    for slow in hosts:
        checked, rounds = to_the_end(hosts, lambda pairs, number, slow=slow: measured(pairs, {slow: speed}, number))
        assert state_of(checked) == {host: "fail" if host == slow else "pass" for host in hosts}
        assert checked["suspects"] == [slow]
        assert rounds <= 5
        assert slow in checked["reason"]
        found = next(node for node in checked["nodes"] if node["host"] == slow)
        assert found["confidence"] > 0.99 and slow in found["action"]


def silent(pairs, frozen, number=0):
    """The measurements of a round where both nodes of a pair report that the other one, which is frozen, never came."""
    return [
        record if not frozen & set(record["hosts"]) else {**record, "busbw": None, "wrong": None, "error": "no answer"}
        for record in measured(pairs, {}, number)
    ]


@pytest.mark.parametrize("count", [3, 4, 5, 8, 9])
def test_a_frozen_node_is_named_with_the_error(count):
    hosts = names(count)
    checked, _ = to_the_end(hosts, lambda pairs, number: silent(pairs, {"n2"}, number))
    assert checked["suspects"] == ["n2"] and checked["state"] == "fail"
    node = checked["nodes"][1]
    assert node["reason"].endswith("measurements failed: no answer")
    assert node["action"].endswith("ansible n2 -m ansible.builtin.ping")


@pytest.mark.parametrize("slower", [1.0, 0.98])
def test_a_pair_that_does_not_meet_is_no_share_of_a_bandwidth(slower):
    """Three nodes, each pair once: either of the two may be the cause, and the error is what is known."""
    hosts = names(3)
    pairs = [("n1", "n2"), ("n1", "n3")]
    records = [*silent([("n2", "n3")], {"n2"}, 0), *rounds_of(hosts, {"n3": slower}, [[pair] for pair in pairs])]
    records[1]["round"], records[2]["round"] = 1, 2
    checked = verify(hosts, records)
    assert checked["state"] == "unknown"
    assert "1 of 2 measurements failed: no answer" in checked["reason"]


def test_reports_of_both_nodes_about_one_measurement_count_once():
    fine = rounds_of(N4, {})
    twice = [*fine, {**fine[0], "hosts": fine[0]["hosts"][::-1], "busbw": None, "error": "reset"}]
    checked = verify(N4, twice)
    assert len(checked["pairs"]) == len(fine)
    assert [pair["error"] for pair in checked["pairs"] if pair["error"]] == ["reset"]


@pytest.mark.parametrize("count", [*range(4, 24), 33, 64])
@pytest.mark.parametrize("first", [0, 1])
def test_every_second_node_that_is_slow_is_named(count, first):
    """Another card in each second slot: among neighbours alone there is not one pair without it."""
    hosts = names(count)
    slow = set(hosts[first::2])
    checked, _ = to_the_end(hosts, lambda pairs, number: measured(pairs, dict.fromkeys(slow, 0.6), number))
    assert {host for host, state in state_of(checked).items() if state == "fail"} == slow


def test_slow_neighbors_are_distinguished_from_healthy_ones():
    hosts = names(16)
    bad = {"n5": 0.6, "n6": 0.6, "n8": 0.6, "n16": 0.3}
    first = verify(hosts, rounds_of(hosts, bad))
    # n7 has met none but slow ones: it is a suspect until it has met another.
    assert first["suspects"] == ["n5", "n6", "n7", "n8", "n16"]
    assert state_of(first)["n7"] == "unknown"
    partners = {host: other for pair in first["retest"] for host, other in (pair, pair[::-1])}
    assert not {partners[host] for host in first["suspects"]} & set(first["suspects"])
    last, rounds = to_the_end(hosts, lambda pairs, number: measured(pairs, bad, number))
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
    records[0] = {**records[0], "busbw": 4.0}
    first = verify(hosts, records)
    assert ("n1", "n2") in first["retest"]
    assert first["state"] == "unknown"
    again = verify(hosts, records + measured(first["retest"], {}, 2))
    assert (again["state"], again["suspects"], again["retest"], again["paths"]) == ("pass", [], [], [])


def test_a_slow_way_between_healthy_nodes_is_no_nodes_fault():
    hosts = names(8)

    def measure(pairs, number):
        return [
            {**record, "busbw": 3.0} if record["hosts"] == ["n1", "n3"] else record
            for record in measured(pairs, {}, number)
        ]

    checked, _ = to_the_end(hosts, measure)
    assert set(state_of(checked).values()) == {"pass"}
    assert checked["state"] == "fail"
    assert checked["suspects"] == []
    assert [(path["hosts"], path["relative"]) for path in checked["paths"]] == [(["n1", "n3"], 0.3)]
    assert "between n1 and n3 only 30%, though both are healthy" in checked["reason"]


def test_a_way_that_is_slow_twice_is_not_decided_yet():
    hosts = names(8)
    records = rounds_of(hosts, {}, [*first_rounds(hosts), [("n1", "n4"), ("n2", "n3"), ("n5", "n8")]])
    records = [{**record, "busbw": 3.0} if record["hosts"] == ["n2", "n3"] else record for record in records]
    # Both were fast with another one, and with one more: it is the way, or passes.
    records += measured([("n2", "n5"), ("n3", "n6")], {}, 3)
    checked = verify(hosts, records)
    assert set(state_of(checked).values()) == {"pass"}
    assert (checked["state"], checked["paths"]) == ("unknown", [])
    assert ("n2", "n3") in checked["retest"]
    assert checked["reason"] == "to be measured again, slow though both nodes were fast elsewhere: n2-n3"


@pytest.mark.parametrize("count", [3, 4, 5, 8])
def test_wrong_results_are_blamed_on_the_node_that_all_of_them_share(count):
    hosts = names(count)

    def measure(pairs, number):
        return [{**record, "wrong": 7 * ("n2" in record["hosts"])} for record in measured(pairs, {}, number)]

    checked, _ = to_the_end(hosts, measure)
    assert checked["state"] == "fail" and checked["suspects"] == ["n2"]
    assert checked["nodes"][1]["reason"].startswith("wrong results in 3 of ")


def test_a_wrong_result_that_never_comes_again_stays_a_failure_of_one_of_the_two():
    records = rounds_of(N4, {})
    records[0] = {**records[0], "wrong": 1}
    checked, rounds = verify(N4, records), 3
    while checked["retest"]:
        records += measured(checked["retest"], {}, rounds)
        checked, rounds = verify(N4, records), rounds + 1
    assert checked["state"] == "fail"
    assert checked["suspects"] == ["n1", "n2"]
    assert checked["reason"] == "n1 or n2 computed a wrong result"
    assert all(node["measurements"] <= MOST_MEASUREMENTS for node in checked["nodes"])


@pytest.mark.parametrize("count", [3, 4, 8])
def test_wrong_results_everywhere_are_no_single_nodes(count):
    hosts = names(count)
    checked = verify(hosts, [{**record, "wrong": 3} for record in rounds_of(hosts, {})])
    assert (checked["state"], checked["suspects"], checked["retest"]) == ("fail", [], [])
    assert set(state_of(checked).values()) == {"unknown"}
    assert checked["reason"] == "every pair computed wrong results: no single node, but what all have in common"


def test_two_neighbours_that_compute_wrongly_are_both_named():
    hosts = names(8)

    def measure(pairs, number):
        bad = {"n3", "n4"}
        return [{**record, "wrong": len(bad & {*record["hosts"]})} for record in measured(pairs, {}, number)]

    checked, rounds = to_the_end(hosts, measure)
    assert (checked["state"], checked["suspects"]) == ("fail", ["n3", "n4"])
    assert rounds <= 5


def test_results_that_were_not_checked_are_no_fault():
    records = [{**record, "wrong": None} for record in rounds_of(N4, {})]
    assert verify(N4, records)["state"] == "pass"


def test_a_rate_that_is_low_everywhere_is_compared_with_the_expectation():
    records = rounds_of(N4, {})
    assert verify(N4, records, expected=12.0)["state"] == "pass"
    checked = verify(N4, records, expected=25.0)
    assert (checked["state"], checked["suspects"]) == ("fail", [])
    assert checked["reason"] == "even the fast pairs have only 10 GB/s, expected at least 20"
    assert verify(N4, records, expected=25.0, limits=Limits(fraction=0.3))["state"] == "pass"


def test_nothing_measured_is_unknown_and_nothing_that_works_a_failure():
    assert [verify(hosts, [])["state"] for hosts in ([], ["n1"], N4)] == ["unknown"] * 3
    assert verify(["n1"], [])["reason"] == "one node has nobody to be paired with"
    dead = verify(N4, silent([("n1", "n2"), ("n3", "n4")], set(N4)))
    assert (dead["state"], dead["suspects"], dead["retest"], dead["median"]) == ("fail", [], [], None)


def test_a_node_that_was_never_measured_is_measured_next():
    hosts = names(8)
    records = [record for record in rounds_of(hosts, {}) if "n4" not in record["hosts"]]
    checked = verify(hosts, records)
    assert (checked["state"], checked["suspects"]) == ("unknown", ["n4"])
    assert [pair for pair in checked["retest"] if "n4" in pair]
    assert verify(hosts, records + measured(checked["retest"], {}, 2))["state"] == "pass"


def test_a_round_that_is_slower_for_all_speaks_against_nobody():
    hosts = names(32)
    records = [
        {**record, "busbw": record["busbw"] * (0.7 if record["round"] == 0 else 1.0)}
        for record in rounds_of(hosts, {"n9": 0.6})
    ]
    checked = verify(hosts, records)
    assert checked["suspects"] == ["n9"]


def test_scatter_lowers_the_gate():
    hosts = names(16)
    rng = seeded(1)
    records = [{**record, "busbw": record["busbw"] * rng.gauss(1, 0.08)} for record in rounds_of(hosts, {})]
    checked = verify(hosts, records)
    assert 0.04 < checked["spread"] < 0.2
    assert checked["gate"] == pytest.approx(checked["median"] * (1 - 3 * checked["spread"]), rel=1e-3)
    assert "the measurements scatter so much that only nodes below" in checked["reason"]


def test_many_slow_nodes_may_be_another_kind():
    hosts = names(12)
    bad = dict.fromkeys(hosts[:5], 0.5)
    checked, _ = to_the_end(hosts, lambda pairs, number: measured(pairs, bad, number))
    assert checked["reason"].startswith("n1 to n5 are not healthy; so many may have another kind of card")


@pytest.mark.parametrize("busbw", [None, float("nan"), float("inf"), -1.0])
def test_a_bandwidth_that_is_no_number_is_an_error(busbw):
    records = rounds_of(N4, {})
    records[0] = {**records[0], "busbw": busbw}
    assert verify(N4, records)["pairs"][0]["error"].startswith("no bandwidth, found ")


@pytest.mark.parametrize("wrong", [["n1", "n9"], ["n1"], ["n1", "n1"]])
def test_measurements_of_others_are_refused(wrong):
    with pytest.raises(ValueError, match="expected: two of the 4 hosts that are checked"):
        verify(N4, [{"hosts": wrong, "round": 0, "busbw": 1.0, "wrong": 0, "error": ""}])


@given(st.randoms(use_true_random=False), st.integers(min_value=3, max_value=40))
def test_slow_nodes_are_found_in_any_place_as_long_as_most_are_healthy(rng, count):
    """Without noise: every slow node is named, nobody else is, whatever the order of the measurements."""
    hosts = names(count)
    bad = {host: rng.uniform(0.1, 0.9) for host in rng.sample(hosts, max(1, count // 5))}

    def measure(pairs, number):
        records = measured(pairs, bad, number)
        rng.shuffle(records)
        return records

    checked, rounds = to_the_end(hosts, measure)
    assert {host for host, state in state_of(checked).items() if state == "fail"} == set(bad)
    assert set(state_of(checked).values()) == {"pass", "fail"}
    assert rounds <= 7


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
    hosts = names(count)
    place = dict(zip(hosts, map(str, range(count))))

    def measure(pairs, number):
        found = fleet.measure(rng, [(place[a], place[b]) for a, b in pairs], number)
        return [{**record, "hosts": [hosts[int(at)] for at in record["hosts"]]} for record in found]

    checked, _ = to_the_end(hosts, measure)
    assert json.loads(json.dumps(checked))["retest"] == []
    assert all(0 <= node["confidence"] <= 1 for node in checked["nodes"])
    assert all((node["state"] == "pass") or node["reason"] for node in checked["nodes"])


def test_the_order_of_measurements_does_not_matter():
    hosts = names(20)
    records = rounds_of(hosts, {"n3": 0.5, "n12": 0.8})
    assert verify(hosts, records) == verify(hosts, records[::-1])


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
        (0, "n2", "n4", 0.0088), (0, "n5", "n3", 0.3368), (1, "n4", "n5", 0.1699), (1, "n3", "n1", 0.3115),
        (2, "n2", "n1", 0.0094), (2, "n4", "n3", 0.1377), (3, "n2", "n5", 0.0086), (3, "n4", "n3", 0.5206),
        (4, "n2", "n3", 0.0066), (4, "n4", "n5", 0.5204), (5, "n4", "n3", 0.2093), (5, "n5", "n1", 0.1525),
    ]  # fmt: skip
    checked = verify(
        names(5),
        [{"hosts": [a, b], "round": number, "busbw": value, "wrong": 0, "error": ""} for number, a, b, value in pairs],
    )
    assert [node["host"] for node in checked["nodes"] if node["state"] == "fail"] == ["n2"]
    assert checked["state"] == "fail"
