"""Baselines, which are a site's own values: their keys, when they are compared, and files that are none."""

from __future__ import annotations

import pytest
from ansible.module_utils.trainyard.verify.bandwidth import (
    BaselineError,
    add_baseline,
    baseline_key,
    hardware,
    read_baselines,
)
from ansible.module_utils.trainyard.verify.benchmark import baseline_entry
from benchmark_samples import H100, PORTS, checked, nic, node, two


def test_a_baseline_that_lacks_the_entry_is_never_passed_over():
    given = {"compare": True, "baselines": {"all_reduce over nccl, 8 hosts": {"busbw": 1.0, "bytes": 8}}}
    record = checked("trainyard-all_reduce-gloo.txt", nodes=two(interfaces=[nic(kind="virtual")]), **given)
    assert record["state"] == "unknown"
    missing = (
        "the baseline has no entry for all_reduce over gloo, 2 hosts x 2 ranks, no GPU, {}; it has all_reduce over "
        "nccl, 8 hosts"
    )
    assert missing.format("virtual NIC") in record["reason"]
    # Where the hardware has a rate, that checks, and the line says so.
    record = checked("trainyard-all_reduce-gloo.txt", nodes=two(), **given)
    assert record["state"] == "pass" and missing.format("physical NIC 10000 Mb/s") in record["expected"]["source"]
    empty = checked("trainyard-all_reduce-gloo.txt", nodes=two(), compare=True)
    assert empty["expected"]["source"].endswith("it has none")


def test_a_baseline_is_kept_for_the_same_hardware_and_spread_only():
    nodes = two(interfaces=[nic(kind="virtual")])
    # Nodes that take no part do not count.
    nodes.append(node("n3", PORTS))
    key = baseline_key(nodes[:2], "all_reduce", "gloo", 2, 4)
    assert key == "all_reduce over gloo, 2 hosts x 2 ranks, no GPU, virtual NIC"
    assert hardware(H100) == "8 x NVIDIA H100 80GB HBM3, 8 x InfiniBand 400 Gb/s"
    assert baseline_key([], "all_reduce", "nccl", 1, 1).endswith("1 host x 1 rank, unknown hardware")
    mixed = [node("n1", PORTS[:1]), node("n2")]
    assert hardware(mixed) == "no GPU, 1 x InfiniBand 400 Gb/s / no GPU, physical NIC 10000 Mb/s"
    entry, reason = baseline_entry(checked("trainyard-all_reduce-gloo.txt", nodes=nodes), "2026-11-21")
    assert (entry, reason) == ({"busbw": 1.1, "bytes": 1 << 24, "saved": "2026-11-21", "run": ""}, "")
    kept = read_baselines(add_baseline(add_baseline("", "other", {"busbw": 2, "bytes": 8}), key, entry))
    assert set(kept) == {key, "other"}
    record = checked("trainyard-all_reduce-gloo.txt", nodes=nodes, baselines=kept)
    assert record["state"] == "pass" and record["expected"]["source"] == "baseline of 2026-11-21 (run unknown)"
    faster = checked("trainyard-all_reduce-gloo.txt", nodes=nodes, baselines={key: {**entry, "busbw": 2.0}})
    assert faster["state"] == "fail"
    # At the baseline's own size, where that is not the largest one.
    smaller = checked("trainyard-all_reduce-gloo.txt", nodes=nodes, baselines={key: {**entry, "bytes": 1 << 12}})
    assert smaller["state"] == "fail" and "busbw 0.17 GB/s at 4096 bytes" in smaller["reason"]
    other = checked("trainyard-all_reduce-gloo.txt", nodes=nodes, baselines={key: {**entry, "bytes": 12}})
    assert other["state"] == "unknown" and "messages of 12 bytes, which were not measured" in other["reason"]
    # A number that the user gives wins over the baseline, and the baseline over the hardware.
    assert (
        checked("trainyard-all_reduce-gloo.txt", nodes=nodes, baselines=kept, busbw=1.2)["expected"]["source"]
        == "given"
    )


def test_the_best_of_one_run_is_its_baseline():
    """Inside each of many equal nodes the same is measured; the last one may be the slow one."""
    file = ""
    for busbw in (470.0, 478.0, 210.0):
        file = add_baseline(file, "key", {"busbw": busbw, "bytes": 8, "run": "inside-20261121"})
    assert read_baselines(file)["key"]["busbw"] == 478.0
    again = add_baseline(file, "key", {"busbw": 460.0, "bytes": 8, "run": "inside-20261122"})
    assert read_baselines(again)["key"]["busbw"] == 460.0
    assert read_baselines(add_baseline(again, "key", {"busbw": 1.0, "bytes": 8, "run": ""}))["key"]["busbw"] == 1.0


@pytest.mark.parametrize(
    "name",
    [
        "2.19-all_reduce-wrong.txt",
        "2.19-all_reduce-killed.txt",
        "2.19-all_reduce-one-gpu.txt",
        "2.19-all_reduce-unchecked.json",
        "2.19-all_reduce-nan.json",
        "2.19-all_reduce-without-mpi.txt",
    ],
)
def test_nothing_that_is_not_wholly_measured_becomes_a_baseline(name):
    entry, reason = baseline_entry(checked(name), "2026-11-21")
    assert entry is None and reason


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("{", "it is no JSON"),
        ("[]", "it is no JSON object with schema"),
        ('{"schema": "trainyard-baseline-2", "entries": {}}', "it is no JSON object with schema"),
        ('{"schema": "trainyard-baseline-1", "entries": {"a": {"busbw": -1, "bytes": 8}}}', "entry 'a' has busbw -1"),
        ('{"schema": "trainyard-baseline-1", "entries": {"a": {"busbw": true, "bytes": 8}}}', "has busbw True"),
        ('{"schema": "trainyard-baseline-1", "entries": {"a": {"busbw": 1, "bytes": "8"}}}', "has bytes '8'"),
        ('{"schema": "trainyard-baseline-1", "entries": {"a": 3}}', "entry 'a' has busbw None"),
    ],
)
def test_a_file_of_baselines_that_is_none(text, found):
    with pytest.raises(BaselineError, match=found):
        read_baselines(text)
