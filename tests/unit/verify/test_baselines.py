"""Baselines, which are a site's own values: their keys, when they are compared, and files that are none."""

from __future__ import annotations

import pytest
from ansible.module_utils.trainyard.verify import bandwidth
from ansible.module_utils.trainyard.verify.bandwidth import add_baseline, baseline_key, read_baselines
from ansible.module_utils.trainyard.verify.benchmark import baseline_entry
from benchmark_samples import H100, PORTS, checked, nic, node, two

GLOO, VIRTUAL = "trainyard-all_reduce-gloo.txt", two(interfaces=[nic(kind="virtual")])
KEY = "all_reduce over gloo, 2 hosts x 2 ranks, no GPU, virtual NIC"


def test_a_missing_entry_of_a_baseline_is_never_passed_over():
    given = {"compare": True, "baselines": {"all_reduce over nccl, 8 hosts": {"busbw": 1.0, "bytes": 8}}}
    record = checked(GLOO, nodes=VIRTUAL, **given)
    assert record["state"] == "unknown"
    assert f"the baseline has no entry for {KEY}; it has all_reduce over nccl, 8 hosts" in record["reason"]
    # Where the hardware has a rate, that checks, and the line says so.
    record = checked(GLOO, nodes=two(), **given)
    assert record["state"] == "pass" and "the baseline has no entry for" in record["expected"]["source"]
    empty = checked(GLOO, nodes=two(), compare=True)
    assert empty["expected"]["source"].endswith("it has none")


def test_a_baseline_is_for_the_same_hardware_and_spread_only():
    assert baseline_key(VIRTUAL, "all_reduce", "gloo", 2, 4) == KEY
    assert bandwidth.hardware(H100) == "8 x NVIDIA H100 80GB HBM3, 8 x InfiniBand 400 Gb/s"
    assert baseline_key([], "all_reduce", "nccl", 1, 1).endswith("1 host x 1 rank, unknown hardware")
    mixed = [node("n1", PORTS[:1]), node("n2")]
    assert bandwidth.hardware(mixed) == "no GPU, 1 x InfiniBand 400 Gb/s / no GPU, physical NIC 10000 Mb/s"


def test_a_bandwidth_is_compared_with_its_baseline():
    # Nodes that take no part do not count.
    nodes = [*VIRTUAL, node("n3", PORTS)]
    entry, reason = baseline_entry(checked(GLOO, nodes=nodes), "2026-11-21")
    small = {"latency_us": 35.7, "latency_bytes": 1 << 14}
    assert (entry, reason) == ({"busbw": 1.1, "bytes": 1 << 24, "saved": "2026-11-21", "run": "", **small}, "")
    saved = read_baselines(add_baseline(add_baseline("", "other", {"busbw": 2, "bytes": 8}), KEY, entry))
    assert set(saved) == {KEY, "other"}

    def compared(**changes):
        record = checked(GLOO, nodes=nodes, baselines={**saved, KEY: {**entry, **changes}})
        return record["state"], record["reason"] or record["expected"]["source"]

    assert compared() == ("pass", "baseline of 2026-11-21 (run unknown)")
    assert compared(busbw=2.0)[0] == "fail"
    # At the baseline's own size, where that is not the largest one.
    state, reason = compared(bytes=1 << 12)
    assert state == "fail" and "busbw 0.17 GB/s at 4096 bytes" in reason
    state, reason = compared(bytes=12)
    assert state == "unknown" and "messages of 12 bytes, which were not measured" in reason
    # A number that the user gives wins over the baseline, and the baseline over the hardware.
    assert checked(GLOO, nodes=nodes, baselines=saved, busbw=1.2)["expected"]["source"] == "given"


def test_the_best_of_one_run_is_its_baseline():
    """Inside each of many equal nodes the same is measured; the last one may be the slow one."""
    file = ""
    for busbw, run, best in ((470, "a", 470), (478, "a", 478), (210, "a", 478), (460, "b", 460), (1, "", 1)):
        file = add_baseline(file, "key", {"busbw": busbw, "bytes": 8, "run": run})
        assert read_baselines(file)["key"]["busbw"] == best


@pytest.mark.parametrize(
    "name", ["wrong.txt", "killed.txt", "one-gpu.txt", "unchecked.json", "nan.json", "without-mpi.txt"]
)
def test_an_incomplete_measurement_is_no_baseline(name):
    entry, reason = baseline_entry(checked(f"2.19-all_reduce-{name}"), "2026-11-21")
    assert entry is None and reason


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("{", "no JSON"),
        ("[]", "it is a list, expected an object"),
        ('{"schema": "trainyard-baseline-2", "entries": {}}', "schema is 'trainyard-baseline-2'"),
        ('{"schema": "trainyard-baseline-1", "entries": {"a": {"busbw": -1, "bytes": 8}}}', "entries.a.busbw is -1"),
    ],
)
def test_a_malformed_file_of_baselines_is_refused(text, found):
    with pytest.raises(bandwidth.BaselineError, match=found):
        read_baselines(text)
