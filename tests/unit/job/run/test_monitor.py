"""Monitors: a job on several nodes lives and dies as one. Real monitors, real processes, one machine."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
from ansible.module_utils.trainyard_node.job.run import head as head_part
from ansible.module_utils.trainyard_node.job.run import log_tail as tails
from ansible.module_utils.trainyard_node.job.run import monitor as monitors
from ansible.module_utils.trainyard_node.job.run import node_part, processes
from ansible.module_utils.trainyard_node.job.run.supervisors import Children
from ansible.module_utils.trainyard_node.machine.json_files import write_json
from job_cluster import PATIENCE_S, Cluster, attempt, wait_for

TORCHRUN = Path(__file__).resolve().parents[3] / "fixtures" / "torchrun"


def test_a_job_on_three_nodes_succeeds(cluster):
    job = cluster(["train", "train"], ["train", "train"], ["train", "train"]).start()
    assert job.state()["state"] == "running"
    for node in job.nodes:
        node.go()
    assert job.over()["state"] == "succeeded"
    job.all_ended()
    assert [node.end()["state"] for node in job.nodes] == ["succeeded"] * 3
    assert [node.exits() for node in job.nodes] == [
        {f"rank{rank}": (0, None) for rank in ranks} for ranks in ((0, 1), (2, 3), (4, 5))
    ]
    state = job.state()
    assert (state["state"], state["ranks_running"], state["world_size"]) == ("succeeded", 0, 6)
    # Also the last line, written just before the end, counts.
    assert state["metrics"] == {"step": 5, "steps": 5, "epoch": 1, "loss": 0.2, "rate": 100.5}
    series = [json.loads(line) for line in (job.head.dir / "metrics.jsonl").read_text().splitlines()]
    assert [(point["step"], point["loss"]) for point in series] == [
        (1, 1.0),
        (2, 0.5),
        (3, 0.3333),
        (4, 0.25),
        (5, 0.2),
    ]
    assert all(point["elapsed_s"] >= 0 for point in series)
    assert not (job.nodes[1].dir / "metrics.jsonl").exists()


def test_the_first_rank_that_fails_ends_all_others(cluster):
    job = cluster(["wait", "wait"], ["wait", "exit7"], ["wait", "wait"]).start()
    job.nodes[1].go()
    end = job.over()
    assert end["state"] == "failed"
    failure = end["failure"]
    assert (failure["kind"], failure["host"], failure["rank"], failure["process"]) == ("exit", "n2", 3, "rank3")
    assert (failure["exit_code"], failure["signal"], failure["result"]) == (7, None, "exit-code")
    job.all_ended()
    # Every node knows why it ended.
    assert [node.end()["failure"]["rank"] for node in job.nodes] == [3, 3, 3]
    assert job.nodes[2].exits() == {"rank4": (None, 15), "rank5": (None, 15)}


def test_a_rank_that_is_killed_is_blamed(cluster):
    job = cluster(["wait"], ["wait"]).start()
    os.kill(job.nodes[1].pid("rank1"), signal.SIGKILL)
    failure = job.over()["failure"]
    assert (failure["host"], failure["rank"], failure["signal"], failure["exit_code"]) == ("n2", 1, 9, None)
    job.all_ended()


def of_ranks(job, world_size):
    """Tell all nodes how many ranks the job has."""
    for node in job.nodes:
        node.spec["world_size"] = world_size
        write_json(node.dir / "node_plan.json", node.spec)


def test_the_report_of_an_agent_names_the_rank(cluster):
    job = cluster(["wait"], ["exit1"])
    agent = job.nodes[1].spec["processes"][0]
    agent.update(name="agent", ranks=[1, 2], log=str(job.nodes[1].dir / "logs" / "agent_1.log"))
    Path(agent["log"]).write_bytes((TORCHRUN / "sigkill-node1.txt").read_bytes())
    of_ranks(job, 3)
    job.start()
    job.nodes[1].go()
    failure = job.over()["failure"]
    assert (failure["process"], failure["rank"], failure["signal"], failure["result"]) == ("agent", 2, 9, "signal")
    assert failure["exit_code"] is None
    job.all_ended()


def test_a_report_of_many_ranks_reaches_the_head(cluster):
    job = cluster(["wait"], ["exit1"])
    # 140 KB of ranks in one message: as many failed processes on a great node.
    job.nodes[1].spec["processes"][0]["ranks"] = list(range(1, 24001))
    of_ranks(job, 24001)
    job.start()
    job.nodes[1].go()
    end = job.over()
    assert (end["failure"]["kind"], end["failure"]["host"]) == ("exit", "n2")
    job.all_ended()
    assert job.nodes[1].end()["failure"] == end["failure"]


def test_a_frozen_node_ends_the_job_on_all_others(cluster):
    job = cluster(["wait"], ["wait"], ["wait"]).start()
    job.nodes[1].signal(signal.SIGSTOP)
    failure = job.over()["failure"]
    assert (failure["kind"], failure["host"], failure["ranks_running"]) == ("silent", "n2", 1)
    assert failure["after_s"] >= 3
    job.all_ended(but=["n2"])
    # When it runs again, it ends its ranks, too.
    job.nodes[1].signal(signal.SIGCONT)
    job.all_ended()
    assert job.nodes[1].end()["state"] == "failed"


def test_a_head_whose_monitor_is_killed(cluster):
    job = cluster(["wait"], ["wait"]).start()
    job.head.signal(signal.SIGKILL)
    job.nodes[1].monitor.wait()
    end = job.nodes[1].end()
    assert (end["state"], end["failure"]["kind"]) == ("failed", "head_silent")
    assert (end["failure"]["host"], end["failure"]["seen_by"]) == ("n1", "n2")
    assert end["failure"]["after_s"] >= 3
    # The ranks of the head node go with their monitor, although nobody was left to end them.
    wait_for(lambda: not job.head.left(), "the head's ranks to end")
    job.all_ended()


def test_a_head_that_stood_still_says_so(cluster):
    job = cluster(["wait"], ["wait"]).start()
    job.head.signal(signal.SIGSTOP)
    job.nodes[1].monitor.wait()
    assert job.nodes[1].end()["failure"]["kind"] == "head_silent"
    job.head.signal(signal.SIGCONT)
    failure = job.over()["failure"]
    # Not the node that has left meanwhile is to blame.
    assert (failure["kind"], failure["host"]) == ("frozen", "n1")
    job.all_ended()


def test_a_job_whose_time_is_up(cluster):
    job = cluster(["wait"], ["wait"], timeout_s=2)
    for node in job.nodes:
        node.start()
    end = job.over()
    assert (end["state"], end["after_s"]) == ("timed_out", 2)
    job.all_ended()
    # Also of ranks that do not hang as far as anybody can tell.
    failure = end["failure"]
    assert (failure["kind"], failure["limit"], failure["step"]) == ("timed_out", "job_timeout", None)
    logs = [node.dir / f"logs/stacks_{node.spec['node_rank']}.log" for node in job.nodes]
    assert failure["groups"] and all(log.exists() for log in logs)


def test_stopping_one_node_stops_the_job(cluster):
    job = cluster(["wait"], ["wait"], ["wait"]).start()
    job.nodes[2].signal(signal.SIGTERM)
    end = job.over()
    assert (end["state"], end["host"]) == ("stopped", "n3")
    job.all_ended()
    assert [node.end()["state"] for node in job.nodes] == ["stopped"] * 3


def test_stopping_the_head_stops_the_job(cluster):
    job = cluster(["wait"], ["wait"]).start()
    job.head.signal(signal.SIGTERM)
    assert job.over()["state"] == "stopped"
    job.all_ended()
    assert job.nodes[1].end()["state"] == "stopped"


def test_a_child_that_is_slow_to_become_a_zombie_is_reaped(tmp_path, monkeypatch):
    """A process gives its memory back first, and with it the job id by which it is found; then its end is told."""
    (tmp_path / "exits").mkdir()
    children = Children(tmp_path, {"job_id": "j", "processes": []})
    child = subprocess.Popen(["sleep", "60"])
    children._running["rank0"] = child
    monkeypatch.setattr(processes, "end", lambda job_id: child.terminate())
    children.end()
    assert json.loads((tmp_path / "exits/rank0.json").read_text())["signal"] == signal.SIGTERM


def test_ranks_that_ignore_sigterm_are_killed(cluster):
    job = cluster(["stubborn"], ["exit1"]).start()
    job.nodes[1].go()
    job.over()
    job.all_ended()
    assert job.head.exits() == {"rank0": (None, 9)}


def test_a_program_that_is_not_there(cluster):
    job = cluster(["wait"])
    job.head.spec["processes"][0]["argv"] = ["no-such-program"]
    write_json(job.head.dir / "node_plan.json", job.head.spec)
    job.head.start()
    assert job.over()["failure"]["exit_code"] == 127
    job.all_ended()
    log = (job.head.dir / "logs" / "rank_0.log").read_text()
    assert log == (f"trainyard: cannot start 'no-such-program': No such file or directory (PATH={os.defpath})\n")


def test_a_process_gets_the_planned_environment_and_nothing_else(cluster):
    job = cluster(["wait"])
    process = job.head.spec["processes"][0]
    process["argv"] = [sys.executable, "-c", "import json, os; print(json.dumps(dict(os.environ)))"]
    process["env"].update(A="planned", HOME="/elsewhere")
    job.head.spec["secret_env"] = {"API_KEY": "secret"}
    write_json(job.head.dir / "node_plan.json", job.head.spec)
    job.head.start()
    job.over()
    env = json.loads((job.head.dir / "logs" / "rank_0.log").read_text())
    env.pop("LC_CTYPE", None)  # set by Python itself where there is no locale
    assert env == {**process["env"], "A": "planned", "HOME": "/elsewhere", "API_KEY": "secret"}


def test_an_id_that_was_used_again_is_another_process(cluster):
    job = cluster(["wait"])
    job.head.start()
    mine = wait_for(lambda: job.head.read("monitor.json"), "monitor.json")
    assert processes.start_time(mine["pid"]) == mine["start_time"]
    from ansible.module_utils.trainyard_node.job.run.processes import monitor_alive

    assert monitor_alive(job.head.dir)
    write_json(job.head.dir / "monitor.json", {**mine, "start_time": mine["start_time"] - 1})
    assert not monitor_alive(job.head.dir)


def test_a_monitor_that_is_started_after_the_end_changes_nothing(cluster):
    job = cluster(["train"]).start()
    job.head.go()
    job.over()
    job.all_ended()
    before = {name: (job.head.dir / name).read_text() for name in ("monitor.json", "cluster.json", "node_plan.json")}
    job.head.start()
    assert job.head.monitor.wait() == 0
    assert {name: (job.head.dir / name).read_text() for name in before} == before


# ---- the head's judgement, where real time would be too long


@pytest.fixture
def judge(tmp_path):
    job = Cluster(tmp_path, ["wait"], ["wait"])
    head = monitors.Monitor(job.head.dir)
    head.report = {"host": "n1", "ranks_running": 1, "done": False, "failures": [], "metrics": {}}
    return head


def test_a_node_that_never_came_is_absent(judge):
    judge.judge(judge.started + head_part.JOIN_S - 1)
    assert not judge.end_record
    judge.judge(judge.started + head_part.JOIN_S + 1)
    assert judge.end_record["failure"] == {"kind": "absent", "host": "n2", "after_s": 120}


def test_a_node_that_has_done_its_work_may_go(judge):
    now = judge.started
    judge.reports["n2"], judge.seen["n2"] = {**judge.report, "host": "n2", "ranks_running": 0, "done": True}, now
    judge.judge(now + 100)
    assert not judge.end_record
    judge.report = {**judge.report, "done": True}
    judge.judge(now + 101)
    assert judge.end_record["state"] == "succeeded"


def failed(host, rank, at, **how):
    how = {"exit_code": 1, "signal": None, **how}
    return {"kind": "exit", "host": host, "process": f"rank{rank}", "ranks": [rank], "rank": rank, "time": at, **how}


def test_failures_that_arrive_together_are_looked_at_together(judge):
    now = judge.started
    later, cause = failed("n1", 0, 10.2), failed("n2", 1, 10.0)
    judge.report = {**judge.report, "failures": [later]}
    judge.judge(now)
    judge.reports["n2"] = {**judge.report, "host": "n2", "failures": [cause]}
    judge.judge(now + head_part.GRACE_S - 0.1)
    assert not judge.end_record
    judge.judge(now + head_part.GRACE_S + 0.1)
    assert judge.end_record["failure"] == cause
    assert judge.end_record["failures"] == [cause, later] or judge.end_record["failures"] == [later, cause]


def test_a_rank_that_was_killed_from_outside_needs_no_second_look(judge):
    judge.report = {**judge.report, "failures": [failed("n1", 0, 10.0)]}
    judge.judge(judge.started)
    assert not judge.end_record
    # SIGABRT is what survivors die of; so may be SIGSEGV.
    for number in (signal.SIGABRT, signal.SIGSEGV):
        judge.reports["n2"] = {**judge.report, "failures": [failed("n2", 1, 10.1, exit_code=None, signal=number)]}
        judge.judge(judge.started)
        assert not judge.end_record
    cause = failed("n2", 1, 10.1, exit_code=None, signal=signal.SIGKILL)
    judge.reports["n2"] = {**judge.report, "failures": [cause]}
    judge.judge(judge.started)
    assert judge.end_record["failure"] == cause


def test_an_agent_that_was_killed_may_have_had_its_reasons(judge):
    """It knows of no rank: what its ranks and the others say is waited for."""
    agent = {**failed("n1", 0, 10.0, exit_code=None, signal=signal.SIGKILL), "rank": None, "ranks": [0, 1]}
    judge.report = {**judge.report, "failures": [agent]}
    judge.judge(judge.started)
    assert not judge.end_record


def test_when_nothing_runs_any_more_nothing_else_is_waited_for(judge):
    cause, later = failed("n1", 0, 10.0), failed("n2", 1, 10.2)
    ended = {**judge.report, "ranks_running": 0, "done": True}
    judge.report = {**ended, "rankless": 1, "failures": [cause]}
    judge.reports["n2"] = {**ended, "host": "n2", "failures": [later]}
    judge.judge(judge.started)
    # MindSpore's scheduler says which worker it missed.
    assert not judge.end_record
    judge.report = {**judge.report, "rankless": 0}
    judge.judge(judge.started)
    assert judge.end_record["failure"] == cause


def in_this_process(job, meanwhile=None):
    """Run the monitors of a job here, and what happens meanwhile in a thread; return how each node ended."""

    async def run():
        nodes = [monitors.Monitor(node.dir) for node in job.nodes]
        doings = [asyncio.to_thread(meanwhile, nodes)] if meanwhile else []
        # In one process, each would reap the other's ranks as orphans that it has adopted.
        with mock.patch.object(processes, "reap_adopted"):
            await asyncio.wait_for(asyncio.gather(*(node.run() for node in nodes), *doings), PATIENCE_S)
        return [node.end_record for node in nodes]

    return asyncio.run(run())


def test_where_the_kernel_cannot_tell_of_an_end_the_monitor_looks_itself(cluster, monkeypatch):
    job = cluster(["exit7"])
    job.head.go()
    monkeypatch.setattr(processes, "open_end", lambda pid, started: None)
    monkeypatch.setattr(sys, "argv", [str(job.head.dir / "trainyard.pyz")])
    assert in_this_process(job)[0]["failure"]["exit_code"] == 7


def test_the_end_of_a_rank_wakes_its_monitor_and_that_the_head_and_the_head_all_others(cluster, monkeypatch):
    job = cluster(["wait"], ["wait"], silent_after_s=2 * PATIENCE_S, max_restarts=1)
    for module in (head_part, node_part):
        monkeypatch.setattr(module, "TICK_S", 2 * PATIENCE_S)
    monkeypatch.setattr(sys, "argv", [str(job.head.dir / "trainyard.pyz")])

    def kill(nodes):
        for number in (0, 1):
            runs = [(node, f"rank{rank}", number) for rank, node in enumerate(job.nodes)]
            wait_for(lambda runs=runs: all(attempt(*run[:2]) == run[2] for run in runs), f"attempt {number}")
            wait_for(lambda: len(nodes[0].reports) == 2 and all(node.followed for node in nodes), "both nodes")
            os.kill(job.nodes[1].pid("rank1"), signal.SIGKILL)

    ends = in_this_process(job, kill)
    # All of it without a look at the clock: the failure, the restart on both nodes, the second failure.
    assert [end["failure"]["rank"] for end in ends] == [1, 1]


def test_a_node_with_another_token_is_not_heard_and_hears_nothing(cluster, monkeypatch):
    job = cluster(["wait"], ["wait"], n2={"token": "another token"})
    for module in (head_part, monitors):
        monkeypatch.setattr(module, "JOIN_S", 2.0)
    monkeypatch.setattr(sys, "argv", [str(job.head.dir / "trainyard.pyz")])
    head, node = in_this_process(job)
    assert (head["failure"]["kind"], head["failure"]["host"]) == ("absent", "n2")
    # That somebody answers is not yet the head.
    assert node["failure"]["kind"] == "head_silent"
    assert job.state()["nodes"]["n2"] == {"ranks_running": None, "silent_s": None}


def test_a_head_that_slept_does_not_take_the_others_for_silent(judge):
    now = judge.started
    judge.reports["n2"], judge.seen["n2"] = {**judge.report, "host": "n2"}, now
    judge.notice_sleep(now, now + 2.9)
    judge.judge(now + 3.1)
    assert not judge.end_record
    # n2 answers again, then goes silent: now it is n2.
    judge.seen["n2"] = now + 4.2
    judge.judge(now + 7.3)
    assert judge.end_record["failure"] == {"kind": "silent", "host": "n2", "after_s": 3, "ranks_running": 1}


def test_a_head_that_slept_so_long_that_a_node_left_blames_itself(judge):
    now = judge.started
    judge.reports["n2"], judge.seen["n2"] = {**judge.report, "host": "n2"}, now
    judge.notice_sleep(now + 0.2, now + 2.9)
    judge.judge(now + 6.0)
    assert judge.end_record["failure"] == {"kind": "frozen", "host": "n1", "after_s": 3}


def test_the_first_reason_stays(judge):
    judge.finish("failed", failure={"kind": "absent"})
    judge.finish("stopped")
    assert judge.end_record["state"] == "failed"


# ---- the log of rank 0


@pytest.fixture
def tail(tmp_path):
    (tmp_path / "logs").mkdir()
    follower = tails.Tail(tmp_path, "rank_0.log", r"step (?P<step>\d+)")

    def write(text):
        with (tmp_path / "logs" / "rank_0.log").open("ab") as log:
            log.write(text)
        follower.read(1.0)
        return follower.last

    follower.read(0.0)
    return write


def test_a_line_counts_when_it_is_whole(tail):
    assert tail(b"step 1") == {}
    assert tail(b"2\nst") == {"step": 12}
    assert tail(b"ep 13\nstep 14\n\xff\xfe\n") == {"step": 14}


def test_the_end_of_a_line_that_is_too_long_is_no_line(tail):
    assert tail(b"x" * 5000 + b" step 7") == {}
    assert tail(b"\n") == {}
    assert tail(b"step 8\n") == {"step": 8}


def test_the_series_stays_small(tail, tmp_path):
    for start in range(0, 6000, 500):
        tail(b"".join(b"step %d\n" % step for step in range(start, start + 500)))
    series = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert len(series) == tails.MAX_METRICS + 2
    assert json.loads(series[-1])["step"] == 5999
