"""Checking a benchmark: results, ranks and hosts, expected bandwidth with its source, baselines, path, the module."""

from __future__ import annotations

import json
import random

import pytest
from ansible.module_utils.trainyard.nvidia.nccl_tests_output import parse
from ansible.module_utils.trainyard.verify.bandwidth import NoFigure, factor, from_hardware
from ansible.module_utils.trainyard.verify.benchmark import Request, baseline_entry, describe, merge, verify
from benchmark_samples import ALL, GIB, H100, HOSTS, PORTS, checked, gpus, nic, node, port, read, traffic, two
from hypothesis import given
from hypothesis import strategies as st

KEYS = [
    "state", "reason", "collective", "backend", "ranks", "hosts", "sizes", "busbw_largest", "busbw_average",
    "footer_seen", "job_id", "format", "expected", "latency", "path", "baseline", "key", "findings",
]  # fmt: skip
A100, L40S = "NVIDIA A100-SXM4-80GB", "NVIDIA L40S"
SIXTEEN, GLOO, WRONG = "2.19-all_reduce-16-h100.txt", "trainyard-all_reduce-gloo.txt", "2.19-all_reduce-wrong.txt"
SOUND = ["2.10-all_reduce-8-v100.txt", "2.13-all_gather-16-a100.txt", "2.17-all_reduce-16-h100-tagged.txt"]
SOUND += ["2.19-alltoall-16-h100.txt", "2.19-all_reduce-2-processes-of-8.json"]
PCIE_4 = {"link_gen_max": 4, "link_width_max": 16}


def test_a_complete_run_passes_by_its_largest_size_and_not_by_its_average():
    moved = {host: (traffic(0), traffic(100 * GIB)) for host in HOSTS}
    record = checked(SIXTEEN, ranks=16, nodes=H100, hosts=HOSTS, exact_hosts=True, traffic=moved)
    assert list(record) == KEYS
    assert (record["state"], record["reason"], record["findings"]) == ("pass", "", [])
    assert record["busbw_largest"] == 385.14 and record["busbw_average"] == pytest.approx(233.787)
    expected = record["expected"]
    assert (expected["busbw"], expected["fraction"], expected["gate"]) == (384.0, 0.9, 345.6)
    assert expected["source"] == "8 x 400 Gb/s InfiniBand a node, of which 96% are reached"
    assert record["path"]["devices"] == ALL
    assert record["sizes"][-1]["out_of_place"]["busbw"] == record["busbw_largest"]
    json.dumps(record, allow_nan=False)


@pytest.mark.parametrize(
    ("name", "state", "reason"),
    [
        (WRONG, "fail", "wrong results: 131072 elements at 1048576 bytes, and at 5 more sizes"),
        ("2.19-all_reduce-killed.txt", "fail", "the table has 1 row without all values: the output was cut off"),
        ("2.19-all_reduce-killed.json", "fail", "its JSON cannot be read"),
        ("2.19-all_reduce-ended-early.json", "fail", "the output ends without its footer"),
        ("2.19-all_reduce-nccl-failure.txt", "fail", "gpu-01: Test NCCL failure common.cu:312"),
        ("2.19-all_reduce-min-bw.txt", "fail", "busbw is below NCCL_TESTS_MIN_BW"),
        ("2.19-all_reduce-without-mpi.txt", "fail", "2 tables of results, and rank 0 is listed 2 times: processes"),
        ("2.19-all_reduce-one-gpu.txt", "unknown", "one rank alone sends nothing"),
        ("2.13-all_reduce-16-a100-unchecked.txt", "unknown", "the results were not checked (-c 0)"),
        ("2.10-broadcast-8-v100-unchecked.txt", "unknown", "the results were not checked (-c 0)"),
        ("2.19-all_reduce-unchecked.json", "unknown", "the results were not checked (-c 0)"),
        ("2.19-all_reduce-nan.json", "unknown", "no bus bandwidth was printed at the largest size"),
        *((name, "pass", "") for name in SOUND),
    ],
)
def test_the_state_of_outputs_with_a_bandwidth_that_all_of_them_reach(name, state, reason):
    record = checked(name, busbw=1.0)
    assert (record["state"], record["reason"][: len(reason)]) == (state, reason)
    assert (record["reason"] == "") == (state == "pass")


@pytest.mark.parametrize("text", [read(WRONG), "# Out of bounds values : 12 FAILED\n"])
@pytest.mark.parametrize("mark", ["#", ""])
def test_wrong_results_fail_also_where_the_marks_of_comments_were_lost(text, mark):
    record = verify(parse(text.replace("#", mark)), Request(busbw=1.0))
    assert record["state"] == "fail"
    assert "12 values out of bounds" in json.dumps(record)


@pytest.mark.parametrize("name", [SIXTEEN, "2.10-all_reduce-8-v100.txt", GLOO])
def test_a_log_that_begins_in_the_middle_is_unknown_wherever_that_is(name):
    text = read(name)
    asked = Request(busbw=0.01, ranks=16, hosts=["gpu-01", "gpu-02", "n9"], exact_hosts=True)
    for at in range(text.index("# Using devices") + 2, text.index("# Avg bus bandwidth")):
        record = verify(parse(text[at:]), asked)
        assert record["state"] == "unknown", text[at : at + 40]
        assert record["reason"].startswith("the log begins in the middle")


def test_a_log_that_begins_in_the_middle_with_wrong_results_fails():
    wrong = read(WRONG)
    assert verify(parse(wrong[wrong.index("#  Rank") :]), Request(busbw=0.01))["state"] == "fail"


def test_json_without_its_begin_is_unknown():
    text = read("2.19-all_reduce-16-h100.json")
    assert verify(parse(text[200:]), Request(busbw=1.0))["state"] == "unknown"


def test_a_bandwidth_that_collapses_in_place_only_does_not_pass():
    text = read(SIXTEEN)
    row = next(line for line in text.splitlines() if line.split()[:1] == ["8589934592"])
    words = row.split()
    assert len(words) == 13
    slow = "31.20".join(row.rsplit(words[11], 1))
    record = verify(parse(text.replace(row, slow)), Request(busbw=384.0))
    assert record["state"] == "fail"
    assert record["reason"].startswith(
        "busbw 31.20 GB/s in place at 8589934592 bytes, expected at least 311.04 (90% of"
    )


def test_a_log_that_ends_in_the_middle_fails_wherever_that_is():
    text = read(GLOO)
    assert verify(parse(text), Request(busbw=1.0, ranks=4))["state"] == "pass"
    for end in range(text.index("# Avg bus")):
        assert verify(parse(text[:end]), Request(busbw=1.0, ranks=4))["state"] == "fail", f"cut at {end}"


@pytest.mark.parametrize("text", ["", "mpirun: command not found\n", "{}", "[]", "# size count type\n"])
def test_text_without_a_table_fails(text):
    record = verify(parse(text), Request(busbw=1.0))
    assert record["state"] == "fail" and record["reason"] and record["sizes"] == []


def test_a_failed_job_is_the_reason_unless_the_output_has_a_better_one():
    failure = "the job failed: rank 1 on n2 failed first: exit status 7"
    assert checked("2.19-all_reduce-killed.txt", job_failure=failure)["reason"] == failure
    record = checked(WRONG, job_failure=failure)
    assert record["reason"].startswith("wrong results")
    assert "exit status 7" in " ".join(record["findings"])
    # A job that failed after a complete table: MPI_Finalize, a time-out.
    assert checked(SIXTEEN, busbw=1.0, job_failure=failure)["state"] == "fail"


@pytest.mark.parametrize(
    ("asked", "state", "reason"),
    [
        ({"ranks": 16, "hosts": ["gpu-01", "gpu-02"]}, "pass", ""),
        ({"ranks": 16, "hosts": ["gpu-01.example.org", "GPU-02"]}, "pass", ""),
        ({"ranks": 24}, "fail", "16 ranks took part, expected 24"),
        ({"hosts": ["gpu-01", "gpu-03"]}, "fail", "no rank ran on gpu-03; ranks ran on gpu-02, which were not asked"),
        ({"hosts": ["gpu-01"]}, "fail", "ranks ran on gpu-02, which were not asked"),
        ({"hosts": ["gpu-01", "gpu-02", "gpu-03"]}, "fail", "no rank ran on gpu-03"),
        ({"hosts": ["a", "b"], "exact_hosts": True}, "fail", "no rank ran on a, b; ranks ran on gpu-01, gpu-02"),
        ({"collective": "all_gather"}, "fail", "all_reduce was measured, expected all_gather"),
    ],
)
def test_ranks_and_hosts_are_those_that_were_asked(asked, state, reason):
    record = checked(SIXTEEN, busbw=1.0, **asked)
    assert (record["state"], record["reason"][: len(reason)]) == (state, reason)


def test_wrong_ranks_are_named_where_the_output_does():
    text = read(GLOO)
    row = next(line for line in text.splitlines() if line.startswith("        4096 "))
    named = "# Wrong on rank 3 on n2: 2 elements\n"
    zero = parse(text.replace(row, f"{row[:-1]}2").replace("# Out", f"{named}# Out").replace(": 0 OK", ": 2 FAILED"))
    record = verify(merge([zero, parse(named)]), Request(busbw=0.1))
    assert record["reason"] == "wrong results: 2 elements at 4096 bytes (rank 3 on n2)"


def test_hosts_have_their_inventory_names():
    nodes = [node("n1", hostname="gpu-01"), node("n2", hostname="gpu-02.cluster")]
    record = checked(SIXTEEN, busbw=1.0, nodes=nodes, hosts=["n1", "n2"])
    assert record["hosts"] == ["n1", "n2"] and record["state"] == "pass"
    twins = [node("n1", hostname="gpu-01"), node("n2", hostname="gpu-01")]
    record = checked(SIXTEEN, busbw=1.0, nodes=twins, hosts=["n1", "n2"])
    assert record["reason"].startswith("n1, n2 have one host name")


def test_names_that_cannot_be_compared_are_noted():
    """As many hosts as the plan has, under names that the inventory does not know: such as localhost."""
    record = checked(SIXTEEN, busbw=1.0, hosts=["10.0.0.1", "10.0.0.2"])
    assert record["state"] == "pass" and record["hosts"] == ["10.0.0.1", "10.0.0.2"]
    assert record["findings"] == ["the output knows the hosts by other names: gpu-01, gpu-02"]


@pytest.mark.parametrize(
    ("removed", "reason"),
    [
        ("Rank", "the output does not list its ranks"),
        ("gpu-02", "busbw is 1.87 times algbw, where all_reduce over the 8 ranks listed makes it 1.75 times"),
    ],
)
def test_ranks_that_are_not_listed_or_do_not_fit_the_numbers(removed, reason):
    text = "\n".join(line for line in read(SIXTEEN).splitlines() if removed not in line)
    record = verify(parse(text), Request(busbw=1.0))
    assert record["state"] == "unknown" and record["reason"].startswith(reason)


def test_groups_are_checked_as_one_of_them():
    text = read(SIXTEEN)
    for rank in range(1, 16, 2):
        text = text.replace(f"Rank {rank:2d} Group  0", f"Rank {rank:2d} Group  1")
    record = verify(parse(text), Request(busbw=1.0, ranks=16))
    assert "the ranks form 2 groups: the bandwidths are those of one group of 8" in record["findings"]
    # 1.88 is the factor of 16 ranks, not of the 8 of a group.
    assert record["state"] == "unknown"


def test_logs_of_ranks_are_read_together():
    alone = read("2.19-all_reduce-one-gpu.txt")
    record = verify(merge([parse(alone), parse(alone)]), Request(ranks=2))
    assert record["state"] == "fail" and "each were a world of their own" in record["reason"]
    silent = parse("n2:1:2 [0] NCCL INFO Using network Socket\n")
    assert verify(merge([silent, parse(read(GLOO))]), Request(busbw=1.0, ranks=4))["state"] == "pass"
    assert verify(merge([]), Request())["reason"] == "no log"


@pytest.mark.parametrize(
    ("collective", "factors"),
    [
        ("all_reduce", {0: None, 1: 0.0, 2: 1.0, 16: 1.875}),
        ("all_gather", {4: 0.75}),
        ("reduce_scatter", {4: 0.75}),
        ("alltoall", {8: 0.875}),
        ("broadcast", {8: 1.0}),
        ("sendrecv", {2: 1.0}),
        ("anything", {2: None}),
    ],
)
def test_factors(collective, factors):
    assert {ranks: factor(collective, ranks) for ranks in factors} == factors


@pytest.mark.parametrize(
    ("nodes", "backend", "ranks", "value", "source"),
    [
        # The reference values of operators: 12 on one NIC of 100, 24 on 200, 192 on 8 of 200, 384 on 8 of 400 Gb/s.
        (two(ports=[port(rate=100.0)], gpus=gpus("Tesla V100-PCIE-16GB", 1)), "nccl", 2, 12.0, "100 Gb/s Infini"),
        (two(ports=[port(rate=200.0, layer="Ethernet")]), "nccl", 2, 24.0, "1 x 200 Gb/s RoCE a node"),
        (two(ports=[port(f"m{n}", 200.0) for n in range(8)], gpus=gpus(A100)), "nccl", 16, 192.0, "8 x 200"),
        (two(ports=PORTS, gpus=gpus()), "nccl", 16, 384.0, "8 x 400 Gb/s InfiniBand"),
        # The nodes' own GPUs are slower than their NICs.
        (two(ports=PORTS, gpus=gpus(A100)), "nccl", 16, 235.0, "8 x A100 SXM4 over NVLink"),
        # A rank drives one NIC; RoCE ports are left out where there is InfiniBand, and so are those that are down.
        (two(ports=PORTS, gpus=gpus()), "nccl", 2, 48.0, "1 x 400 Gb/s"),
        (two(ports=[port(rate=100.0), port("m1", 25.0, "Ethernet"), port("m2", active=False)]), "nccl", 8, 12.0, "1 x"),
        # 400 Gb/s behind PCIe 4 x16.
        (two(ports=[port()], gpus=gpus(L40S, 1, **PCIE_4)), "nccl", 2, 26.778, "at most 26.8 GB/s each"),
        (two(), "nccl", 16, 1.125, "eth0 with 10 Gb/s, of which TCP makes 90%"),
        (two(interfaces=[nic(speed=100000)]), "nccl", 16, 5.0, "about 5 GB/s"),
        (two(interfaces=[nic("bond0", "bond", 20000)], interface="bond0"), "nccl", 16, 2.25, "bond0 with 20 Gb/s"),
        (two(interfaces=[nic(speed=1000)]), "gloo", 4, 0.1125, "eth0 with 1 Gb/s"),
        (two(), "mpi", 2, 1.125, "eth0 with 10 Gb/s"),
        ([node("n1", gpus=gpus())], "nccl", 8, 480.0, "8 x H100 SXM5 over NVLink"),
        ([node("n1", gpus=gpus("NVIDIA H200"))], "nccl", 8, 480.0, "8 x H200"),
        ([node("n1", gpus=gpus("Tesla V100-SXM2-32GB"))], "nccl", 8, 130.0, "8 x V100"),
        ([node("n1", gpus=[{"name": "A100 SXM4 80GB"}] * 8)], "nccl", 8, 235.0, "8 x A100"),
        ([node("n1", gpus=gpus(L40S, 4, **PCIE_4))], "nccl", 4, 18.902, "PCIe 4 x16"),
    ],
)  # fmt: skip
def test_the_expected_bandwidth_of_hardware(nodes, backend, ranks, value, source):
    expected = from_hardware(nodes, "all_reduce", backend, ranks)
    assert expected.busbw == pytest.approx(value, abs=0.001) and source in expected.source


@pytest.mark.parametrize(
    ("nodes", "collective", "backend", "ranks", "why"),
    [
        ([], "all_reduce", "nccl", 8, "the nodes' hardware was not read"),
        # The speed of a veth is 10000 whatever carries it.
        (two(interfaces=[nic(kind="virtual")]), "all_reduce", "gloo", 4, "eth0 of n1 is virtual: it has no"),
        (two(interfaces=[nic(kind="bridge")]), "all_reduce", "nccl", 4, "eth0 of n1 is bridge"),
        (two(interfaces=[nic(speed=None)]), "all_reduce", "gloo", 4, "eth0 of n1 does not say its speed"),
        (two(interfaces=[]), "all_reduce", "gloo", 4, "n1 has no interface eth0"),
        (two(interface=""), "all_reduce", "gloo", 4, "the interface of n1 is not known"),
        (two(interfaces=[nic(speed=100000)]), "all_reduce", "gloo", 4, "more than gloo is known to fill"),
        (two(), "broadcast", "gloo", 4, "how broadcast over gloo uses the links depends on its algorithm"),
        (two(), "gather", "nccl", 4, "how gather over nccl uses the links"),
        (two(), "reduce_scatter", "mpi", 4, "how reduce_scatter over mpi uses the links"),
        ([node("n1", gpus=gpus("Tesla V100-SXM2-32GB"))], "alltoall", "nccl", 8, "there is no figure for 8 of 8 x Te"),
        ([node("n1", gpus=gpus(L40S, **PCIE_4))], "sendrecv", "nccl", 8, "there is no figure for 8 of 8 x NVIDIA L40S"),
        (two(ports=[port()]), "all_reduce", "mpi", 4, "there are no figures for MPI over RDMA"),
        (two(ports=[port(rate=None)]), "all_reduce", "nccl", 4, "n1 has an active RDMA port without a rate"),
        (two(), "all_reduce", "hccl", 16, "there are no figures for hccl"),
        ([node("n1")], "all_reduce", "gloo", 4, "inside one node gloo uses memory or loopback"),
        ([node("n1")], "all_reduce", "nccl", 4, "n1 has no GPU"),
        ([node("n1", gpus=gpus(number=4))], "all_reduce", "nccl", 4, "there is no figure for 4 of 4 x NVIDIA H100"),
        ([node("n1", gpus=gpus("NVIDIA B200"))], "all_reduce", "nccl", 8, "there is no figure for 8 of 8 x NVIDIA B"),
        ([node("n1", gpus=gpus(L40S))], "all_reduce", "nccl", 8, "PCIe generation and width of n1's NVIDIA L40S"),
        # With NVLink, as nobody can tell from the name.
        ([node("n1", gpus=gpus("NVIDIA H20", **PCIE_4))], "all_reduce", "nccl", 8, "there is no figure for 8 of 8 x"),
        ([node("n1", gpus=[*gpus(number=1), *gpus(L40S, 1)])], "all_reduce", "nccl", 2, "n1 has GPUs of 2 models"),
    ],
)  # fmt: skip
def test_hardware_without_an_expected_bandwidth_has_a_reason(nodes, collective, backend, ranks, why):
    missing = from_hardware(nodes, collective, backend, ranks)
    assert why in missing.why
    # A value that a reader should have read differs from one that no such machine has.
    should = ("not read", "no interface", "interface of n1 is not known", "without a rate", "PCIe generation")
    assert missing.unread == any(words in missing.why for words in should)


def test_a_node_that_could_not_be_read_counts_more_than_one_without_a_rate():
    nodes = [node("n1", interfaces=[nic(kind="virtual")]), node("n2", interfaces=[])]
    assert from_hardware(nodes, "all_reduce", "gloo", 2) == NoFigure("n2 has no interface eth0", unread=True)


def test_the_slowest_node_sets_the_expectation():
    nodes = [node("n1", PORTS[:2]), node("n2", PORTS[:1]), node("n3", PORTS[:2])]
    expected = from_hardware(nodes, "all_reduce", "nccl", 12)
    assert expected.busbw == 48.0 and expected.source.endswith("(n2; other nodes have more)")


@given(
    st.lists(st.sampled_from([25.0, 100.0, 200.0, 400.0]), min_size=1, max_size=8),
    st.integers(1, 8),
    st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce"]),
)
def test_no_more_is_expected_than_the_ports_have(rates, each, collective):
    nodes = two(ports=[port(f"m{index}", rate) for index, rate in enumerate(rates)])
    expected = from_hardware(nodes, collective, "nccl", 2 * each)
    assert 0 < expected.gate < expected.busbw < sum(rates) / 8


FAST = two(ports=PORTS, gpus=gpus())


@pytest.mark.parametrize(
    ("nodes", "collective", "backend", "ranks", "value"),
    [
        *((FAST, collective, "nccl", 16, 360.0) for collective in ("all_gather", "reduce_scatter", "broadcast")),
        *((FAST, collective, "nccl", 16, 36.0) for collective in ("alltoall", "sendrecv")),
        # Eight ranks share one port; in rank order only one of them sends to another node.
        (two(ports=[port(rate=100.0)], gpus=gpus(A100)), "alltoall", "nccl", 16, 1.125),
        (two(ports=[port(rate=100.0)], gpus=gpus(A100)), "sendrecv", "nccl", 16, 9.0),
        (two(), "alltoall", "gloo", 8, 0.211),
        (two(), "sendrecv", "mpi", 8, 0.844),
        (two(), "reduce_scatter", "gloo", 2, 0.562),
        ([node("n1", gpus=gpus())], "all_gather", "nccl", 8, 360.0),
        ([node("n1", gpus=gpus())], "alltoall", "nccl", 8, 270.0),
        ([node("n1", gpus=gpus(A100))], "reduce_scatter", "nccl", 8, 235.0),
    ],
)
def test_what_each_collective_should_reach(nodes, collective, backend, ranks, value):
    assert from_hardware(nodes, collective, backend, ranks).busbw == pytest.approx(value, abs=0.001)


@pytest.mark.parametrize("number", [4, 8, 64])
@pytest.mark.parametrize("collective", ["all_reduce", "reduce_scatter", "alltoall", "sendrecv"])
def test_healthy_clusters_pass_and_one_slow_port_does_not(collective, number):
    """1,000 clusters in all, each as fast as its slowest port; exchanges also lose where flows meet."""
    chance = random.Random(number)  # noqa: S311
    gate = from_hardware([node(f"n{at}", PORTS) for at in range(number)], collective, "nccl", 8 * number).gate
    ports = 1 if collective in ("alltoall", "sendrecv") else 8
    # A part of an alltoall's bytes stays inside the node.
    outside = (number - 1) / number if collective == "alltoall" else 1.0
    for _ in range(84):
        meet = chance.uniform(0.75, 1.0) if ports == 1 else 1.0
        slowest = min(min(0.98, chance.gauss(0.955, 0.01)) for _ in range(number))
        reached = 50 * ports * slowest * meet / outside
        assert reached >= gate > reached / 2


def test_a_slow_alltoall_fails_and_says_what_it_should_reach():
    text = read("2.19-alltoall-16-h100.txt")
    moved = {host: (traffic(0), traffic(100 * GIB)) for host in HOSTS}
    asked = Request(ranks=16, nodes=H100, hosts=HOSTS, traffic=moved)
    assert verify(parse(text), asked)["state"] == "pass"
    slow = verify(parse(text.replace("48.78   45.73", "24.39   22.86")), asked)
    assert slow["state"] == "fail" and "75% of 1/8 of it for alltoall" in slow["reason"]


def test_below_the_gate_is_a_failure_at_the_largest_size():
    record = checked(SIXTEEN, busbw=480.0)
    assert record["state"] == "fail"
    assert record["reason"] == "busbw 385.14 GB/s at 8589934592 bytes, expected at least 432.00 (90% of 480.00: given)"
    assert checked(SIXTEEN, busbw=480.0, fraction=0.8)["state"] == "pass"
    # The lowest of several measurements of the largest size (-N, -o all).
    text = read(SIXTEEN)
    last = next(line for line in text.splitlines() if line.startswith("  8589934592"))
    slow = last.replace("385.14", " 85.14").replace("205.41", " 45.41")
    again = verify(parse(text.replace(last, f"{slow}\n{last}")), Request(busbw=384.0))
    assert (again["state"], again["busbw_largest"]) == ("fail", 85.14)


def test_more_than_expected_passes_and_is_noted():
    nodes = [node(host, PORTS[:2], gpus(), hostname=f"gpu-{index}") for index, host in enumerate(("n1", "n2"), 1)]
    record = checked("2.17-all_reduce-16-h100-tagged.txt", nodes=nodes)
    assert record["state"] == "pass" and "NCCL_ALGO=RING" in record["findings"][0]


def test_hardware_that_was_not_read_is_unknown():
    record = checked(GLOO, nodes=two()[:1])
    assert record["state"] == "unknown" and "the hardware of n2 was not read" in record["reason"]
    assert "not read" in baseline_entry(record, "2026-11-21")[1]


def test_a_rate_that_no_such_machine_has_is_skipped():
    nodes = two(interfaces=[nic(kind="virtual")])
    record = checked(GLOO, nodes=nodes)
    assert record["state"] == "skipped" and record["expected"] is None
    assert record["reason"].startswith("nothing to compare it with: eth0 of n1 is virtual: it has no speed of its own")
    assert describe(record).startswith("  all_reduce over gloo, 4 ranks: not applicable, 1.10 GB/s at ")
    # Without a figure a wrong result is one all the same, and what was not measured stays unknown.
    assert checked(WRONG, nodes=nodes)["state"] == "fail"
    assert checked("2.19-all_reduce-unchecked.json", nodes=nodes)["state"] == "unknown"
