"""Benchmarks and stragglers as checks of the verification."""

import pytest
from ansible.module_utils.trainyard.verify.measured import benchmark_checks, size_text, straggler_checks
from ansible.module_utils.trainyard.verify.stragglers import verify

AGAIN = "ansible-playbook playbooks/verify.yml -i mine"


def record(**changes):
    base = {
        "state": "pass",
        "reason": "",
        "collective": "all_reduce",
        "backend": "nccl",
        "hosts": ["n1", "n2"],
        "ranks": 16,
        "busbw_largest": 371.5,
        "sizes": [{"bytes": 8}, {"bytes": 8 << 30}],
        "expected": {"busbw": 384.0, "fraction": 0.9, "gate": 345.6, "source": "8 x 400 Gb/s"},
        "path": None,
        "job_id": "all-reduce-1",
    }
    return {**base, **changes}


def stragglers(*nodes, **changes):
    base = {"state": "pass", "reason": "", "median": 24.0, "gate": 19.2, "nodes": list(nodes), "pairs": [{}, {}]}
    return {**base, **changes}


def node(host, state, score=1.0):
    return {
        "host": host,
        "state": state,
        "score": score,
        "confidence": 0.9,
        "measurements": 3,
        "reason": f"{host} is slow",
        "action": "ibstat",
    }


@pytest.mark.parametrize(
    ("size", "text"), [(8, "8 bytes"), (1 << 20, "1 MiB"), (1025, "1025 bytes"), (8 << 30, "8 GiB"), (3 << 10, "3 KiB")]
)
def test_sizes_are_read_in_the_largest_unit_that_divides_them(size, text):
    assert size_text(size) == text


def test_a_bandwidth_is_shown_with_its_gate_and_where_that_comes_from():
    (check,) = benchmark_checks(record(), AGAIN)
    assert check.state == "pass" and check.action == ""
    assert check.found == "busbw 371.50 GB/s at 8 GiB over 16 ranks"
    assert check.expected == "at least 345.60 GB/s, 90% of 384.00"
    assert check.source == "8 x 400 Gb/s"
    assert (check.name, check.hosts) == ("all_reduce over nccl", ())


def test_a_benchmark_inside_a_node_is_about_that_node():
    (check,) = benchmark_checks(record(hosts=["n7"], state="fail", reason="too slow"), AGAIN)
    assert (check.name, check.hosts) == ("all_reduce over nccl inside n7", ("n7",))


def test_a_benchmark_without_expectation_is_skipped_with_an_action():
    path = {"state": "pass", "devices": ["TCP"], "reason": "gloo speaks TCP, whatever RDMA there is"}
    (check,) = benchmark_checks(
        record(state="skipped", reason="nothing to compare with", expected=None, path=path), AGAIN
    )
    assert (check.state, check.expected) == ("skipped", "")
    assert "verify_busbw" in check.action and "verify_save_baseline" in check.action


def test_a_bandwidth_that_was_kept_is_what_is_expected_from_then_on():
    kept = record(state="skipped", reason="nothing to compare with", expected=None, baseline="mine/baseline.json")
    (check,) = benchmark_checks(kept, AGAIN)
    assert (check.state, check.reason, check.action, check.source) == ("pass", "", "", "kept by this run")
    assert check.found.endswith("over 16 ranks, kept as the baseline in mine/baseline.json")
    # A wrong result is not kept, whatever its bandwidth is.
    (check,) = benchmark_checks(record(state="unknown", reason="no rank is listed", expected=None), AGAIN)
    assert (check.state, check.reason) == ("unknown", "no rank is listed")


def test_the_only_pair_is_skipped_with_an_action():
    alone = verify(["n1", "n2"], [{"hosts": ["n1", "n2"], "round": number, "busbw": 9.0 + number} for number in (0, 1)])
    (check,) = straggler_checks(alone, AGAIN)
    assert (check.state, check.reason) == ("skipped", "one pair has nothing to compare it with")
    assert "pair_busbw" in check.action


def test_a_wrong_path_fails_beside_a_bandwidth_that_passes():
    path = {"state": "fail", "devices": ["eth0"], "reason": "the bytes went over TCP"}
    bandwidth, carried = benchmark_checks(record(path=path), AGAIN)
    assert (bandwidth.state, carried.state) == ("pass", "fail")
    assert (carried.found, carried.reason) == ("eth0", "the bytes went over TCP")


def test_a_run_without_a_table_says_that_nothing_was_measured():
    (check,) = benchmark_checks(
        record(state="fail", busbw_largest=None, sizes=[], expected=None, reason="rank 1 failed"), AGAIN
    )
    assert (check.state, check.found, check.reason) == ("fail", "nothing was measured", "rank 1 failed")


def test_nodes_to_blame_are_named_one_by_one():
    nodes = [node("n1", "pass"), node("n2", "fail", 0.6), node("n3", "fail", 0.5), node("n4", "fail", 0.7)]
    checks = straggler_checks(stragglers(*nodes, state="fail"), AGAIN)
    assert [(check.state, check.hosts) for check in checks] == [("fail", (host,)) for host in ("n3", "n2", "n4")]
    assert checks[0].found == "50% of the bandwidth of the others, confidence 90%"
    assert checks[0].action == "ibstat"


def test_bad_pairs_that_no_node_explains_are_a_fault_all_the_same():
    checks = straggler_checks(stragglers(node("n1", "unknown", None), state="fail", reason="n1-n2 is slow"), AGAIN)
    assert [(check.state, check.hosts) for check in checks] == [("fail", ()), ("unknown", ("n1",))]
    assert checks[0].reason == "n1-n2 is slow" and "verify_rounds=full" in checks[0].action
    assert checks[1].found == "no bandwidth with any partner"


def test_healthy_pairs_are_one_check():
    (check,) = straggler_checks(stragglers(node("n1", "pass"), node("n2", "pass")), AGAIN)
    assert (check.state, check.found, check.action) == ("pass", "median 24.00 GB/s over 2 pairs", "")
