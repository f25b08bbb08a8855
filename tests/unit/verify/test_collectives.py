"""The result of an all-gather over all ranks."""

from __future__ import annotations

import os
import random

import pytest
from ansible.module_utils.trainyard.base.spans import ranges
from ansible.module_utils.trainyard.job.placement.binding import VARIABLE, cores
from ansible.module_utils.trainyard.verify.collectives import binding, check, verify
from ansible.module_utils.trainyard_node.job.run.ranks import execute
from benchmark_samples import write_run

HOSTS = {0: "n1", 1: "n1", 2: "n2"}


def line(rank, values="0 1 2", ranks=3, outcome="right"):
    return f"something before\nall-gather rank {rank} of {ranks} on host: {values} {outcome}\nsomething after\n"


RIGHT = {rank: line(rank) for rank in HOSTS}
WRONG = {0: line(0), 1: line(1, "0 7 2", outcome="wrong, expected 0 1 2")}
# Each rank is a world of its own.
ALONE = dict.fromkeys(HOSTS, line(0, "0", ranks=1))
OTHER = "has 0 and takes itself for rank 0"


def texts(findings):
    return [(finding.host, finding.found) for finding in findings]


@pytest.mark.parametrize(
    ("logs", "state", "found"),
    [
        (RIGHT, "succeeded", []),
        (WRONG, "failed", [("n1", "rank 1 has 0 7 2"), ("n2", "rank 2 printed no result")]),
        (ALONE, "succeeded", [("n1", "rank 0 has 0"), ("n1", f"rank 1 {OTHER}"), ("n2", f"rank 2 {OTHER}")]),
        (RIGHT, "failed", [("", "it failed after every rank had gathered rightly")]),
    ],
)
def test_wrong_and_silent_ranks_are_named_with_their_hosts(logs, state, found):
    findings = verify(HOSTS, logs, state)
    assert texts(findings) == found
    assert {finding.expected for finding in findings if finding.host} <= {"0 1 2"}


def test_a_rank_in_anothers_place_is_wrong():
    logs = {0: line(1), 1: line(0), 2: line(2)}
    assert [host for host, _ in texts(verify(HOSTS, logs, "succeeded"))] == ["n1", "n1"]


def test_many_numbers_are_shortened():
    hosts = dict.fromkeys(range(100), "n1")
    assert verify(hosts, {}, "failed")[0].expected == "0 1 2 ... 99"


def test_it_reads_the_logs_under_the_launchers_own_name(tmp_path, act):
    folder = write_run(tmp_path, {rank: line(rank) for rank in (0, 2)}, {"n1": [0, 1], "n2": [2]}, "failed")
    result = act("verify", step="collective", run_dir=folder)
    assert result["ranks"] == 3
    assert [(item["host"], item["found"]) for item in result["findings"]] == [("n1", "rank 1 printed no result")]
    (tmp_path / "summary.json").unlink()
    missing = act("verify", step="collective", run_dir=folder)
    assert missing["failed"] and "is not the folder of a run that has ended" in missing["msg"]


def test_a_job_that_failed_before_any_rank_had_gathered_is_no_result_of_collectives():
    failure = "the job failed: rank 0 on n1 failed first: exit code 1"
    findings = verify(HOSTS, {0: "ModuleNotFoundError: No module named 'mindspore'"}, "failed", failure, "n1")
    assert [(each.check, *text) for each, text in zip(findings, texts(findings))] == [("job", "n1", failure)]
    # A rank with a result is checked, and so are silent ranks beside it.
    assert len(verify(HOSTS, {0: line(0)}, "failed", failure, "n1")) == 2


KILLED = "the job failed: rank 2 on n2 failed first: killed by SIGKILL"


@pytest.mark.parametrize(
    ("logs", "failure", "failed_on", "state", "hosts", "reason"),
    [
        (RIGHT, "", "", "pass", (), ""),
        ({**RIGHT, 1: line(1, "0 7 2")}, "", "", "fail", ("n1",), "rank 1 has 0 7 2"),
        # The rank that is wrong ended the job before others had a result.
        ({1: line(1, "0 7 2")}, "the job failed: rank 1", "n1", "fail", ("n1",), "rank 1 has 0 7 2"),
        ({}, KILLED, "n2", "fail", ("n2",), KILLED),
        ({}, "the job timed_out", "", "fail", ("n1", "n2"), "the job timed_out"),
        (RIGHT, KILLED, "n2", "fail", ("n2",), KILLED),
        ({0: line(0), 1: line(1)}, "", "", "fail", ("n2",), "rank 2 printed no result"),
    ],
)
def test_the_check_names_those_that_it_is_about(logs, failure, failed_on, state, hosts, reason):
    findings = verify(HOSTS, logs, "failed" if failure else "succeeded")
    found = check("all-gather of pytorch", findings, 3, "again", failure, failed_on)
    assert (found.state, found.hosts, found.reason) == (state, hosts, reason)
    assert (found.phase, found.command, found.expected) == ("collectives", "again", "0 to 2 on every rank")
    assert bool(found.action) == (state == "fail")


def test_a_job_that_was_refused_is_a_failed_check(act):
    finding = {"host": "n2", "check": "versions", "found": "no torch", "expected": "torch", "action": "run"}
    result = act("verify", step="collective", refused=[finding], name="all-gather of pytorch")
    assert (result["ranks"], result["check"]["state"], result["check"]["hosts"]) == (0, "fail", ["n2"])
    assert result["check"]["reason"] == "the job could not run: no torch, expected torch"
    assert "neither run_dir nor refused is given" in act("verify", step="collective")["msg"]


def bound_ranks(chosen, monkeypatch):
    """Return what a node of several sockets plans, and what its ranks print after they were bound."""
    sockets, each, own = chosen.choice([2, 4, 8]), chosen.choice([2, 4, 28, 64]), chosen.choice([1, 2, 4])
    # Hyper-threads are the second half of all numbers. A cpuset may leave out some cores.
    spans = [(at * each, at * each + each - 1) for at in range(sockets)]
    cpus = [f"{low}-{high},{low + sockets * each}-{high + sockets * each}" for low, high in spans]
    may = set(range(2 * sockets * each)) - set(chosen.choice([[], [low for low, _ in spans]]))
    devices = chosen.sample(range(sockets * own), sockets * own)
    domains = [{"cpus": text, "devices": devices[at * own : at * own + own]} for at, text in enumerate(cpus)]
    value, printed = cores(domains, sorted(devices), len(devices)), {}
    for rank in range(len(devices)):
        has = [may]
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, may=may: may)
        monkeypatch.setattr(os, "sched_setaffinity", lambda _, some, has=has: has.append(some))
        execute.bind({VARIABLE: value, "LOCAL_RANK": str(rank)})
        printed[rank] = f"before\ncores of rank {rank}: {','.join(map(str, sorted(has[-1])))}\n"
    return dict(enumerate(value.split(";"))), printed, may


def test_a_rank_whose_launcher_dropped_the_binding_is_named_and_no_healthy_one(monkeypatch):
    for seed in range(1000):
        chosen = random.Random(seed)  # noqa: S311
        planned, logs, may = bound_ranks(chosen, monkeypatch)
        hosts = {rank: f"n{rank % 2}" for rank in logs}
        [found] = binding("x", hosts, planned, logs, "again")
        assert (found.state, found.hosts, found.reason) == ("pass", (), ""), seed
        lost = chosen.choice([*logs])
        logs[lost] = f"cores of rank {lost}: {','.join(map(str, may))}\n"
        [found] = binding("x", hosts, planned, logs, "again")
        text = f"rank {lost} may run on {ranges(may)[:100]}, expected {planned[lost]}"
        assert (found.state, found.hosts, found.reason) == ("fail", (hosts[lost],), text) and found.action, seed


def test_a_rank_speaks_for_its_cores_alone_and_in_bounds(tmp_path, act):
    hosts, planned = {0: "n1", 1: "n2"}, {0: "0-3", 1: "4-7"}
    right, own = "cores of rank 0: 0,1\n", "cores of rank 1: "
    for other in ("", right, f"{own}4-7\n", f"{own}999999\n", f"{own}4{',5' * 10000}\n"):
        [found] = binding("x", hosts, planned, {0: f"{right}{own}9\n", 1: other}, "again")
        assert (found.state, found.hosts, found.reason) == ("unknown", ("n2",), "rank 1 printed no cores")
    assert binding("x", hosts, {}, {}, "again") == []
    folder, plan = write_run(tmp_path, {0: line(0, "0 1", 2) + right}, {"n1": [0], "n2": [1]}), tmp_path / "plan.json"
    plan.write_text(plan.read_text().replace('"ranks": [0]', '"ranks": [0], "cores": ["2-3"]', 1))
    done = act("verify", step="collective", run_dir=folder, name="x")
    [found], told = done["cores"], done["findings"][-1]
    assert (found["state"], found["reason"]) == ("fail", "rank 0 may run on 0-1, expected 2-3")
    assert (told["check"], told["host"], told["found"]) == ("cores", "n1", found["reason"])
