"""How long small messages take: of a benchmark against its baseline, of pairs among one another."""

from __future__ import annotations

import random

import pytest
from ansible.module_utils.trainyard.nvidia.nccl_tests_output import parse
from ansible.module_utils.trainyard.verify.benchmark import Request, baseline_entry
from ansible.module_utils.trainyard.verify.benchmark import verify as verify_benchmark
from ansible.module_utils.trainyard.verify.latency import limit, of_pairs
from ansible.module_utils.trainyard.verify.measured import benchmark_checks, straggler_checks
from ansible.module_utils.trainyard.verify.pair_report import describe, verify
from ansible.module_utils.trainyard.verify.pairing import first_rounds
from benchmark_samples import checked, nic, read, two
from test_baselines import GLOO, KEY

VIRTUAL = two(interfaces=[nic(kind="virtual")])
MEASURED = {"us": 35.7, "bytes": 16384, "limit_us": None}


def pairs(hosts, of=lambda *ends: 100.0, rails=1, backend="nccl"):
    return [
        {"hosts": list(pair), "round": number, "rail": rail, "busbw": 1.0, "wrong": 0, "error": "",
         "latency_us": of(*pair, rail), "backend": backend}
        for number, each in enumerate(first_rounds(hosts)) for pair in each for rail in range(rails)
    ]  # fmt: skip


def names(count):
    return [f"n{number}" for number in range(1, count + 1)]


def slower(*slow):
    return lambda one, other, rail: 1100.0 if {one, other} & {*slow} else 100.0


def blamed(found):
    return sorted(tuple(each["hosts"]) for each in found["slow"])


def test_a_benchmark_shows_its_latency_and_is_judged_by_its_baseline_alone():
    record = checked(GLOO, nodes=VIRTUAL)
    assert record["state"] == "skipped" and record["latency"] == MEASURED
    entry, _ = baseline_entry(record, "2026-11-21")

    def compared(text, fraction=0.9, **change):
        baselines = {KEY: {**entry, **change}}
        return verify_benchmark(parse(text), Request(nodes=VIRTUAL, fraction=fraction, baselines=baselines))

    check, _ = benchmark_checks(compared(read(GLOO)), "again")
    assert check.state == "pass" and check.found.endswith(", 35.7 µs up to 16 KiB")
    assert check.expected == "at least 0.99 GB/s, 90% of 1.10, and at most 50.04 ms"
    # Each second one: a disturbed measurement does not count.
    once = read(GLOO).replace(" 31.40", " 99931.4").replace(" 35.52", " 99935.5").replace(" 52.16", " 99952.1")
    assert compared(once.replace("99952.1", "52.16"))["state"] == "pass"
    late = once.replace(" 35.87", " 99935.9")
    slow = compared(late)
    assert (slow["state"], slow["busbw_largest"]) == ("fail", 1.1)
    assert slow["reason"] == "messages up to 16384 bytes take 99.93 ms, expected at most 50.04 ms (baseline)"
    assert compared(late, fraction=0.01)["state"] == "pass"
    # Other sizes take another time, and a file of an older version has none.
    assert compared(late, latency_bytes=4096)["state"] == compared(late, latency_us=None)["state"] == "pass"


@pytest.mark.parametrize("count", [3, 4, 5, 16])
def test_a_slow_node_is_named_wherever_it_is(count):
    for host in names(count):
        assert blamed(of_pairs(pairs(names(count), slower(host)))) == [(host,)]
        # Its processors may be busy.
        assert blamed(of_pairs(pairs(names(count), slower(host), backend="gloo"))) == []


def test_the_check_says_who_and_by_how_much_and_fails_the_pairs():
    found = verify(
        names(4), pairs(names(4), lambda one, other, rail: 1100.0 if rail and "n3" in (one, other) else 90, 2)
    )
    (check,) = straggler_checks(found, "again")
    assert (found["state"], check.state, check.hosts) == ("fail", "fail", ("n3",))
    text = "small messages with it take up to 1.1 ms, expected at most 270 µs, in 3 pairs of device 1"
    assert check.reason == text and f"n3: {text}" in describe(found) and "power saving" in check.action


def test_two_that_only_met_each_other_are_named_together_and_a_slow_way_is_nobodys():
    late = [each for each in pairs(names(6), slower("n1", "n2")) if each["round"] == 0]
    assert blamed(of_pairs(late)) == [("n1", "n2")]
    checks = straggler_checks(verify(names(6), late), "again")
    assert [(each.state, each.hosts) for each in checks] == [("fail", ()), ("unknown", ("n1",)), ("unknown", ("n2",))]
    far = pairs(names(6), lambda one, other, rail: 900.0 if {one, other} == {"n1", "n3"} else 100.0)
    assert of_pairs(far)["slow"] == []


@pytest.mark.parametrize("value", [None, "fast", True, float("nan"), -1.0, 0, 1e300])
def test_a_time_that_no_pair_takes_is_none(value):
    assert of_pairs(pairs(names(4), lambda *ends: value)) in (None, of_pairs(pairs(names(4), lambda *ends: 1)))


def test_one_pair_is_shown():
    speed, check = straggler_checks(verify(names(2), pairs(names(2))), "again")
    assert (check.state, check.found) == ("skipped", "100 µs over 1 pair")
    assert (speed.state, "pair_busbw" in speed.action) == ("skipped", True)
    speed, check = straggler_checks(verify(names(3), pairs(names(3))), "again")
    assert (speed.state, check.state, check.expected) == ("pass", "pass", "at most 300 µs")


@pytest.mark.parametrize("usual", [8.0, 30.0, 400.0])
@pytest.mark.parametrize("count", [2, 3, 4, 8, 32, 256])
def test_healthy_clusters_raise_no_alarm_and_a_slow_node_does(count, usual):
    """1,000 clusters in all: times scatter by a fifth from node to node, and again from pair to pair."""
    chance = random.Random(count * usual)  # noqa: S311
    hosts = names(count)
    for _ in range(80 if count < 256 else 10):
        nodes = {host: chance.lognormvariate(0, 0.2) for host in hosts}

        def time(one, other, rail, nodes=nodes):
            return usual * max(nodes[one], nodes[other]) * chance.lognormvariate(0, 0.2)

        healthy = pairs(hosts, time)
        assert of_pairs(healthy)["slow"] == []
        # A baseline is as disturbed as what is compared with it.
        assert healthy[0]["latency_us"] < limit(healthy[-1]["latency_us"], "nccl")
    for each in healthy:
        each["latency_us"] = each["latency_us"] + (20 * usual + 100) * ("n2" in each["hosts"])
    assert blamed(of_pairs(healthy)) == ([("n2",)] if count > 2 else [])
