"""Monitors start a job, or a process of it, again: on several nodes, each a real monitor with real processes."""

from __future__ import annotations

import os
import signal

import pytest
from ansible.module_utils.trainyard.job.run import failure as failures
from ansible.module_utils.trainyard.job.run.restarts import WHOLE
from ansible.module_utils.trainyard_node.job.run import monitor as monitors
from ansible.module_utils.trainyard_node.job.run import processes
from ansible.module_utils.trainyard_node.machine.json_files import write_json
from job_cluster import Cluster, attempt, wait_for


def running(job, number):
    """Wait until every rank of the job runs its script for the `number`th time after the first."""
    names = [(node, process["name"]) for node in job.nodes for process in node.spec["processes"]]
    wait_for(lambda: all(attempt(node, name) == number for node, name in names), f"attempt {number} of all processes")
    wait_for(lambda: job.state()["ranks_running"] == job.head.spec["world_size"], "all ranks")


def test_a_failure_starts_the_whole_job_again_until_the_budget_is_used_up(cluster):
    job = cluster(["wait"], ["wait"], max_restarts=2).start()
    for number in (1, 2):
        first = [node.pid(f"rank{rank}") for rank, node in enumerate(job.nodes)]
        os.kill(job.nodes[1].pid("rank1"), signal.SIGKILL)
        running(job, number)
        # No rank is left from before.
        assert not set(first) & {node.pid(f"rank{rank}") for rank, node in enumerate(job.nodes)}
    history = job.state()["restarts"]["history"]
    assert [(entry["reason"], entry["restarted"]) for entry in history] == [
        ("rank 1 on n2: killed by SIGKILL", "the whole job")
    ] * 2
    assert (job.head.dir / "logs" / "rank_0.log").read_text().splitlines() == [
        "--- started again, attempt 2 ---",
        "--- started again, attempt 3 ---",
    ]
    os.kill(job.head.pid("rank0"), signal.SIGKILL)
    end = job.over()
    assert (end["state"], end["failure"]["rank"]) == ("failed", 0)
    job.all_ended()


@pytest.mark.parametrize(
    ("before", "mode", "lost"),
    [
        ("RuntimeError: [/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:1431", "exit3", False),
        ("ValueError: loss is nan", "lost", True),
    ],
)
def test_what_a_rank_printed_in_an_attempt_before_tells_nothing_of_its_end(cluster, before, mode, lost):
    job = cluster([mode])
    job.head.dir.joinpath("logs", "rank_0.log").write_text(f"{before}\n--- started again, attempt 2 ---\n")
    job.start()
    job.head.go()
    assert ("lost" in job.over()["failure"]) is lost
    job.all_ended()


def test_a_job_that_gets_no_further_fails_whatever_is_left_of_the_budget(cluster):
    job = cluster(["exit3"], ["wait"], max_restarts=9).start()
    job.head.go()
    end = job.over()
    assert (end["state"], end["failure"]["exit_code"], end["failure"]["fruitless"]) == ("failed", 3, 3)
    assert [entry["wait_s"] for entry in job.state()["restarts"]["history"]] == [0, 5]
    job.all_ended()


def test_after_a_restart_a_job_succeeds(cluster):
    job = cluster(["train"], ["train"], max_restarts=1).start()
    os.kill(job.head.pid("rank0"), signal.SIGKILL)
    running(job, 1)
    for node in job.nodes:
        node.go()
    assert job.over()["state"] == "succeeded"
    job.all_ended()
    assert [node.exits() for node in job.nodes] == [{"rank0": (0, None)}, {"rank1": (0, None)}]


def test_what_belongs_to_one_attempt_is_gone_in_the_next(cluster):
    job = cluster(["wait"], max_restarts=1).start()
    (job.head.dir / "attempt" / "recovery").mkdir(parents=True)
    os.kill(job.head.pid("rank0"), signal.SIGKILL)
    running(job, 1)
    assert not (job.head.dir / "attempt").exists()


def without_ranks(job, name="scheduler", mode="wait", **changes):
    """Give the head another process, one without ranks."""
    like = job.head.spec["processes"][0]
    process = {**like, "name": name, "ranks": [], "log": str(job.head.dir / "logs" / f"{name}.log"), **changes}
    process["argv"] = [*like["argv"][:-1], mode]
    job.head.spec["processes"].append(process)
    write_json(job.head.dir / "node_plan.json", job.head.spec)
    return job


def test_a_process_that_can_come_back_is_started_again_alone(cluster):
    job = without_ranks(cluster(["wait"], ["wait"], max_restarts=1), recover_after_s=1).start()
    ranks = [job.head.pid("rank0"), job.nodes[1].pid("rank1")]
    os.kill(job.head.pid("scheduler"), signal.SIGKILL)
    wait_for(lambda: attempt(job.head, "scheduler") == 1, "the scheduler's second start")
    wait_for(lambda: job.state()["restarts"]["history"], "the head's book")
    assert [entry["restarted"] for entry in job.state()["restarts"]["history"]] == ["scheduler"]
    assert ranks == [job.head.pid("rank0"), job.nodes[1].pid("rank1")]
    assert attempt(job.head) == attempt(job.nodes[1], "rank1") == 0
    # The budget is one for both kinds.
    os.kill(job.head.pid("scheduler"), signal.SIGKILL)
    assert job.over()["failure"]["process"] == "scheduler"
    job.all_ended()


def test_a_process_without_ranks_does_not_keep_the_job_alive(cluster):
    job = without_ranks(cluster(["train"], ["train"])).start()
    for node in job.nodes:
        node.go()
    assert job.over()["state"] == "succeeded"
    job.all_ended()


def test_a_process_without_ranks_that_fails_ends_the_job(cluster):
    job = without_ranks(cluster(["wait"], ["wait"]), mode="exit3")
    job.start()
    job.head.go()
    failure = job.over()["failure"]
    assert (failure["process"], failure["rank"], failure["exit_code"]) == ("scheduler", None, 3)
    job.all_ended()


def test_a_node_that_was_frozen_takes_part_again(cluster):
    job = cluster(["wait"], ["wait"], ["wait"], max_restarts=1, rejoin_s=60).start()
    job.nodes[1].signal(signal.SIGSTOP)
    wait_for(lambda: job.state()["restarts"]["gathering"], "the head to give the node up")
    # Nobody starts without it.
    wait_for(lambda: job.state()["ranks_running"] <= 1, "the others to end their ranks")
    assert attempt(job.head) == 0
    job.nodes[1].signal(signal.SIGCONT)
    running(job, 1)
    assert job.state()["restarts"]["history"][0]["failure"]["kind"] == "silent"
    for node in job.nodes:
        node.signal(signal.SIGTERM)
    job.all_ended()


def test_a_node_that_does_not_come_back_ends_the_job(cluster):
    job = cluster(["wait"], ["wait"], max_restarts=3, rejoin_s=2).start()
    job.nodes[1].signal(signal.SIGKILL)
    failure = job.over()["failure"]
    assert (failure["kind"], failure["host"], failure["after_s"]) == ("not_back", "n2", 2)
    job.all_ended()


def test_a_node_whose_head_is_gone_waits_and_then_ends(cluster):
    job = cluster(["wait"], ["wait"], max_restarts=1, rejoin_s=3).start()
    job.head.signal(signal.SIGKILL)
    wait_for(lambda: not processes.ranks_of_job(job.nodes[1].job_id, job.nodes[1].dir), "its ranks to end")
    assert job.nodes[1].monitor.poll() is None
    job.nodes[1].monitor.wait()
    assert job.nodes[1].end()["failure"]["kind"] == "head_silent"


def test_a_node_that_waits_for_the_word_to_go_ends_nothing_of_the_next_attempt(tmp_path, monkeypatch):
    """Under mpirun the ranks of other nodes are the head's processes: they may start here before its word arrives."""
    job = Cluster(tmp_path, ["wait"], ["wait"])
    job.nodes[1].spec["processes"] = []
    write_json(job.nodes[1].dir / "node_plan.json", job.nodes[1].spec)
    node = monitors.Monitor(job.nodes[1].dir)
    left, ended = [4711], []
    monkeypatch.setattr(processes, "ranks_of_job", lambda *_: list(left))
    monkeypatch.setattr(processes, "ask_to_end", ended.extend)
    monkeypatch.setattr(os, "kill", lambda pid, number: ended.append(pid))
    node.wanted, node.go = {**node.attempts, WHOLE: 1}, False
    node.look()
    assert (ended, node.report["ready_for"]) == ([4711], None)
    left.clear()
    node.look()
    assert node.report["ready_for"] == node.wanted
    left.append(4712)
    node.look()
    assert (ended, node.report["ready_for"]) == ([4711], node.wanted)


def test_a_process_that_starts_while_all_gather_for_the_next_attempt_is_ended(tmp_path, monkeypatch):
    """systemd may be late to start it (TimeoutStopSec of its last run): when it does, its turn is over already."""
    node = monitors.Monitor(Cluster(tmp_path, ["wait"]).nodes[0].dir)
    left, ended, exits = [], [], {}
    monkeypatch.setattr(processes, "ranks_of_job", lambda *_: list(left))
    monkeypatch.setattr(processes, "ask_to_end", ended.extend)
    monkeypatch.setattr(os, "kill", lambda pid, number: ended.append(pid))
    monkeypatch.setattr(node.supervisor, "exits", lambda: exits)
    node.wanted, node.go = {**node.attempts, WHOLE: 1}, False
    node.look()
    assert (ended, node.report["ready_for"]) == ([], None)
    left.append(4712)
    node.look()
    assert (ended, node.report["ready_for"]) == ([4712], None)
    left.clear()
    exits["rank0"] = {"exit_code": None, "signal": 15, "result": "signal", "time": 0.0, "attempt": 0}
    node.look()
    assert node.report["ready_for"] == node.wanted


def test_a_rank_that_mpirun_started_on_another_node_is_told_with_that_node(tmp_path, monkeypatch):
    node = monitors.Monitor(Cluster(tmp_path, ["wait"], ["wait"]).nodes[0].dir)
    log = tmp_path / "mpirun.log"
    node.spec.update(
        processes=[{**node.spec["processes"][0], "name": "mpirun", "ranks": [0, 1], "log": str(log)}],
        ranks_of={"n2": [1]},
    )
    ended = {"exit_code": 1, "signal": None, "result": "exit-code", "time": 1.0, "attempt": 0}
    monkeypatch.setattr(node.supervisor, "exits", lambda: {"mpirun": ended})
    for rank, host in ((1, "n2"), (0, "n1")):
        log.write_text(f"trainyard: rank {rank} ended with status 7\n")
        node.report = {}
        node.look()
        assert [(each["rank"], each["host"]) for each in node.report["failures"]] == [(rank, host)]
        assert failures.text(node.report["failures"][0]) == f"rank {rank} on {host}: exit code 7"
