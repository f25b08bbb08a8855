"""The judgement of an all-gather over all ranks."""

from __future__ import annotations

import json

import collective_verdict
import pytest
from ansible.module_utils.testing import patch_module_args
from ansible.module_utils.trainyard.collective import judge

HOSTS = {0: "n1", 1: "n1", 2: "n2"}


def line(rank, values="0 1 2", ranks=3, verdict="right"):
    return f"something before\nall-gather rank {rank} of {ranks} on host: {values} {verdict}\nsomething after\n"


def texts(findings):
    return [(finding.host, finding.found) for finding in findings]


def test_all_ranks_with_all_numbers_are_right():
    assert judge(HOSTS, {rank: line(rank) for rank in HOSTS}, "succeeded") == []


def test_wrong_and_silent_ranks_are_named_with_their_hosts():
    logs = {0: line(0), 1: line(1, "0 7 2", verdict="wrong, expected 0 1 2")}
    findings = judge(HOSTS, logs, "failed")
    assert texts(findings) == [("n1", "rank 1 has 0 7 2"), ("n2", "rank 2 printed no result")]
    assert {finding.expected for finding in findings} == {"0 1 2"}


def test_ranks_that_take_themselves_for_the_only_one_are_wrong():
    logs = {rank: line(0, "0", ranks=1) for rank in HOSTS}
    assert texts(judge(HOSTS, logs, "succeeded")) == [
        ("n1", "rank 0 has 0"),
        ("n1", "rank 1 has 0 and takes itself for rank 0"),
        ("n2", "rank 2 has 0 and takes itself for rank 0"),
    ]


def test_a_rank_in_anothers_place_is_wrong():
    logs = {0: line(1), 1: line(0), 2: line(2)}
    assert [host for host, _ in texts(judge(HOSTS, logs, "succeeded"))] == ["n1", "n1"]


def test_a_job_that_failed_afterwards_is_wrong():
    logs = {rank: line(rank) for rank in HOSTS}
    assert texts(judge(HOSTS, logs, "failed")) == [("", "it failed after every rank had gathered rightly")]


def test_many_numbers_are_shortened():
    hosts = dict.fromkeys(range(100), "n1")
    assert judge(hosts, {}, "failed")[0].expected == "0 1 2 ... 99"


def verdict(capsys, **params):
    with patch_module_args(params), pytest.raises(SystemExit):
        collective_verdict.main()
    return json.loads(capsys.readouterr().out)


def test_the_module_reads_the_logs_under_the_launchers_own_name(tmp_path, capsys):
    plan = {"rank_log": "worker_{rank}.log", "nodes": [{"host": "n1", "ranks": [0, 1]}, {"host": "n2", "ranks": [2]}]}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    (tmp_path / "logs").mkdir()
    for rank in (0, 2):
        (tmp_path / f"logs/worker_{rank}.log").write_text(line(rank))
    missing = verdict(capsys, run_dir=str(tmp_path))
    assert missing["failed"] and "is not the folder of a run that has ended" in missing["msg"]
    (tmp_path / "summary.json").write_text(json.dumps({"state": "failed"}))
    result = verdict(capsys, run_dir=str(tmp_path))
    assert result["ranks"] == 3
    assert [(item["host"], item["found"]) for item in result["findings"]] == [("n1", "rank 1 printed no result")]
