"""The action collective_benchmark over files, runs and counters."""

from __future__ import annotations

import json

import pytest
from ansible.module_utils.trainyard_node.hardware.rdma_traffic import read_traffic
from ansible.module_utils.trainyard_node.machine.tree import Tree
from benchmark_samples import GIB, H100, OUTPUTS, nic, read, two, write_run

GLOO = read("trainyard-all_reduce-gloo.txt")


def measure(act, **params):
    (record,) = act("collective_benchmark", **params)["benchmarks"]
    return record


def test_a_file_is_verified(act, tmp_path):
    log = OUTPUTS / "2.19-all_reduce-16-h100.json"
    result = act("collective_benchmark", parse=str(log), expected_ranks=16, expected_busbw=384, job_id="mine")
    assert result["changed"] is False and "stands-for-a-secret" not in json.dumps(result)
    assert (result["benchmarks"][0]["state"], result["benchmarks"][0]["job_id"]) == ("pass", "mine")
    bad = measure(act, parse=str(OUTPUTS / "README.md"))
    assert (bad["state"], bad["reason"]) == ("fail", "there is no table of results in it")
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    assert measure(act, parse=str(tmp_path / "binary"))["state"] == "fail"


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"parse": "/proc/nowhere/log"}, "/proc/nowhere/log is not a file that can be read"),
        ({"run_dir": "/proc/nowhere"}, "/proc/nowhere is not the folder of a run that has ended"),
        ({"parse": "x", "run_dir": "y"}, "mutually exclusive"),
        ({}, "neither parse nor run_dir is given"),
        ({"parse": "x", "save_baseline": True}, "baseline"),
        ({"parse": "x", "fraction": 90}, "fraction is 90, expected a number above 0, at most 1"),
        ({"parse": "x", "expected_busbw": -1}, "expected_busbw is -1, expected GB/s above 0"),
    ],
)
def test_only_unusable_input_is_a_failure(params, message, act):
    result = act("collective_benchmark", **params)
    assert result["failed"] and message in result["msg"]


RANKS = {"n1": [0, 1], "n2": [2, 3]}


def test_a_run_is_verified_by_its_plan(act, tmp_path):
    folder = write_run(tmp_path, {0: GLOO}, RANKS)
    result = measure(act, run_dir=folder, expected_busbw=1.0)
    assert (result["state"], result["hosts"], result["backend"]) == ("pass", ["n1", "n2"], "gloo")
    assert result["job_id"] == "benchmark-1"
    # A rank that took itself for the only one has a table of its own in its log.
    (tmp_path / "logs/worker_2.log").write_text(GLOO)
    result = measure(act, run_dir=folder, expected_busbw=1.0)
    assert result["state"] == "fail" and "each were a world of their own" in result["reason"]


def test_the_nodes_of_a_run_may_work_by_themselves(act, tmp_path):
    """Two ranks of each node have a table in their node's first log; that of n2 stops in the middle."""
    lines = GLOO.splitlines(keepends=True)
    footer = [line for line in lines if "bounds" in line or "Avg" in line]
    header = [line for line in lines if line.startswith("#") and " Rank " not in line and line not in footer]
    row = f"{4096:12}{1024:14}   float   sum   -1{'  10.00  4.00  4.00  0' * 2}\n"

    def table(host, end):
        ranks = [f"#  Rank  {rank} Group  0 Pid   200{rank} on {host:>10} device cpu [eth0] gloo\n" for rank in (0, 1)]
        at = next(number for number, line in enumerate(header) if "Using devices" in line) + 1
        return "".join([*header[:at], *ranks, *header[at:], row, *(footer if end else [])])

    folder = write_run(tmp_path, {0: table("n1", True), 2: table("n2", False)}, RANKS)
    given = {"run_dir": folder, "each_node": True, "expected_busbw": 4.0, "baseline": str(tmp_path / "baselines.json")}
    result = act("collective_benchmark", **given, save_baseline=True)
    first, second = result["benchmarks"]
    assert (first["state"], first["hosts"], first["ranks"], first["busbw_largest"]) == ("pass", ["n1"], 2, 4.0)
    assert (second["state"], second["hosts"], second["footer_seen"]) == ("fail", ["n2"], False)
    assert first["job_id"] == second["job_id"] == "benchmark-1"
    assert result["changed"]
    (tmp_path / "logs/worker_2.log").unlink()
    second = act("collective_benchmark", **given)["benchmarks"][1]
    assert (second["state"], second["hosts"]) == ("fail", ["n2"])


def test_a_run_that_was_killed_half_way_fails_with_the_jobs_reason(act, tmp_path):
    failure = {"kind": "exit", "host": "n2", "process": "rank2", "rank": 2, "ranks": [2], "signal": 9, "time": 1.0}
    failure |= {"exit_code": None, "result": "signal"}
    folder = write_run(tmp_path, {0: GLOO[: len(GLOO) * 3 // 4]}, RANKS, "failed", failure)
    record = measure(act, run_dir=folder, expected_busbw=1.0)
    assert record["state"] == "fail"
    assert record["reason"].startswith("the job failed: rank 2 on n2 failed first: ")
    assert record["sizes"] and not record["footer_seen"]


def test_a_baseline_is_saved_and_compared_with(act, tmp_path):
    file = tmp_path / "baselines.json"
    nodes = two(interfaces=[nic(kind="virtual")])

    def call(name="trainyard-all_reduce-gloo.txt", **params):
        return act("collective_benchmark", parse=str(OUTPUTS / name), nodes=nodes, baseline=str(file), **params)

    missing = call()
    assert missing["failed"] and f"there is no file {file}" in missing["msg"]
    assert call(save_baseline=True, check=True)["changed"] and not file.exists()
    saved = call(save_baseline=True)
    key = saved["baseline"]["key"]
    assert saved["changed"] and saved["baseline"]["saved"] and key in file.read_text()
    assert f"  kept as the baseline in {file}: 1.10 GB/s, {key}" in saved["text"].splitlines()
    assert saved["benchmarks"][0]["baseline"] == str(file)
    assert call()["benchmarks"][0]["state"] == "pass"
    assert not call(save_baseline=True)["changed"]
    refused = call("2.19-all_reduce-wrong.txt", save_baseline=True)
    assert not refused["changed"] and not refused["baseline"]["saved"]
    assert refused["baseline"]["reason"].startswith("wrong results")
    assert "  not kept as the baseline: wrong results" in refused["text"]
    file.write_text("nothing")
    assert "is no file of baselines" in call()["msg"]


def test_counters_come_in_bytes(act, tmp_path):
    def traffic(host, root):
        return {"host": host, "ports": read_traffic(Tree(root))}

    def tree(units):
        for device in range(8):
            folder = tmp_path / f"sys/class/infiniband/mlx5_{device}/ports/1/counters"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "port_xmit_data").write_text(f"{units}\n")
            (folder / "port_rcv_data").write_text("N/A (not supported)\n" if device == 7 else f"{units}\n")
        return [traffic(host, tmp_path) for host in ("gpu-01", "gpu-02")]

    before = tree(1000)
    assert before[0]["host"] == "gpu-01"
    assert before[0]["ports"]["mlx5_0:1"] == {"sent": 4000, "received": 4000}
    assert before[0]["ports"]["mlx5_7:1"] == {"sent": 4000, "received": None}
    given = {"parse": str(OUTPUTS / "2.19-all_reduce-16-h100.txt"), "nodes": H100, "traffic_before": before}
    moved = measure(act, **given, traffic_after=tree(1000 + 9 * GIB))
    assert (moved["state"], moved["path"]["state"]) == ("pass", "pass")
    dry = measure(act, **given, traffic_after=tree(2000))
    assert dry["state"] == "fail" and "did not move by the bytes of the run" in dry["reason"]
    assert traffic("n1", tmp_path / "sys")["ports"] == {}
