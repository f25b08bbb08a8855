"""Benchmarks and stragglers as checks of the verification."""

import pytest
from ansible.module_utils.trainyard.verify.measured import benchmark_checks, straggler_checks

AGAIN = "ansible-playbook playbooks/verify.yml -i mine"


RECORD = {
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
# A benchmark without an expected value.
SKIPPED = {"state": "skipped", "reason": "nothing to compare with", "expected": None}


def benchmark(**changes):
    return benchmark_checks({**RECORD, **changes}, AGAIN)


def pairs(*nodes, state="pass", reason=""):
    measured = {"median": 24.0, "gate": 19.2, "pairs": [{}, {}]}
    return straggler_checks({**measured, "state": state, "reason": reason, "nodes": list(nodes)}, AGAIN)


def node(host, state, score=1.0):
    reason = {"reason": f"{host} is slow", "action": "ibstat"}
    return {"host": host, "state": state, "score": score, "confidence": 0.9, "measurements": 3, **reason}


def test_a_bandwidth_is_shown_with_its_gate_and_where_that_comes_from():
    (check,) = benchmark()
    assert (check.state, check.action, check.name, check.hosts) == ("pass", "", "all_reduce over nccl", ())
    assert check.found == "busbw 371.50 GB/s at 8 GiB over 16 ranks"
    assert check.expected == "at least 345.60 GB/s, 90% of 384.00"
    assert check.source == "8 x 400 Gb/s"


def test_a_benchmark_without_expectation_is_skipped_with_an_action():
    path = {"state": "pass", "devices": ["TCP"], "reason": "gloo speaks TCP, whatever RDMA there is"}
    (check,) = benchmark(**SKIPPED, path=path)
    assert (check.state, check.expected) == ("skipped", "")
    assert "verify_busbw" in check.action and "verify_save_baseline" in check.action


def test_a_saved_bandwidth_is_expected_from_then_on():
    (check,) = benchmark(**SKIPPED, baseline="mine/baseline.json")
    assert (check.state, check.reason, check.action, check.source) == ("pass", "", "", "saved by this run")
    assert check.found.endswith("over 16 ranks, saved as the baseline in mine/baseline.json")


def test_a_wrong_path_fails_beside_a_bandwidth_that_passes():
    bandwidth, path = benchmark(path={"state": "fail", "devices": ["eth0"], "reason": "the bytes went over TCP"})
    assert (bandwidth.state, path.state) == ("pass", "fail")
    assert (path.found, path.reason) == ("eth0", "the bytes went over TCP")


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"state": "fail", "busbw_largest": None, "sizes": []}, "nothing was measured"),
        # A wrong result is not saved, whatever its bandwidth is.
        ({"state": "unknown"}, "busbw 371.50 GB/s at 8 GiB over 16 ranks"),
    ],
)
def test_a_run_without_a_result_has_a_reason(changes, found):
    (check,) = benchmark(expected=None, reason="rank 1 failed", **changes)
    assert (check.state, check.found, check.reason) == (changes["state"], found, "rank 1 failed")


def test_nodes_to_blame_are_named_one_by_one():
    nodes = [node("n1", "pass"), node("n2", "fail", 0.6), node("n3", "fail", 0.5), node("n4", "fail", 0.7)]
    checks = pairs(*nodes, state="fail")
    assert [(check.state, check.hosts) for check in checks] == [("fail", (host,)) for host in ("n3", "n2", "n4")]
    assert checks[0].found == "50% of the bandwidth of the others, confidence 90%"
    assert checks[0].action == "ibstat"


def test_bad_pairs_that_no_node_explains_are_a_fault_all_the_same():
    bad, unknown = pairs(node("n1", "unknown", None), state="fail", reason="n1-n2 is slow")
    assert [(check.state, check.hosts) for check in (bad, unknown)] == [("fail", ()), ("unknown", ("n1",))]
    assert bad.reason == "n1-n2 is slow" and "verify_rounds=full" in bad.action
    assert unknown.found == "no bandwidth with any partner"


def test_of_two_nodes_none_is_compared_with_others():
    _, first, second = pairs(node("n1", "unknown", 1.0), node("n2", "unknown", 1.0), state="fail", reason="slow")
    assert first.found == second.found == "24.00 GB/s with the only partner" and first.expected == ""
